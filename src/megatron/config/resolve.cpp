#include "megatron/config/resolve.h"

#include <algorithm>

#include "megatron/config/batch_schedule.h"
#include "megatron/config/field_values.h"
#include "megatron/config/list_expression.h"

namespace megatron {
namespace {

/// Megatron's rule for gated MLPs: two thirds of four times the hidden size, down to a multiple of 64.
std::int64_t default_ffn_hidden_size(const TransformerConfig& model) {
  if (model.hidden_size > kLargestSize) return 0;  // validate_model names it
  return model.gated_linear_unit ? model.hidden_size * 8 / 3 / 64 * 64 : 4 * model.hidden_size;
}

void resolve_window_layers(TransformerConfig& model) {
  if (model.window_attn_skip_freq.empty() || !model.window_layers.empty() || model.num_layers <= 0 || model.num_layers > kMostLayers) return;
  if (auto list = list_expression(model.window_attn_skip_freq)) {
    model.window_layers = std::move(*list);
    return;
  }
  try {
    const std::int64_t every = integer_value(model.window_attn_skip_freq);
    if (every < 1) return;
    for (std::int64_t layer = 1; layer <= model.num_layers; ++layer) model.window_layers.push_back(layer % every != 0);
  } catch (const FieldError&) {
    return;  // validate_model names it
  }
}

void resolve_batches(TrainingConfig& training, std::int64_t data_parallel_size) {
  try {
    const NumMicrobatchesCalculator batches(training, data_parallel_size);
    training.global_batch_size = batches.final_batch_size();
    if (training.train_iters == 0) training.train_iters = batches.iterations_for(training.train_samples);
  } catch (const UserError&) {
    return;  // validate_run names it
  }
}

bool has_data(const DataConfig& data) {
  return !data.data_path.empty() || !data.train_data_path.empty() || !data.valid_data_path.empty() || !data.test_data_path.empty() ||
         !data.data_args_path.empty() || !data.per_split_data_args_path.empty();
}

void resolve_data(DataConfig& data) {
  const bool is_blend = !data.data_path.empty() || !data.data_args_path.empty();
  if (!has_data(data)) {
    data.mock_data = true;
    if (data.split.empty()) data.split = "1,1,1";
  }
  if (is_blend && data.split.empty()) data.split = "969, 30, 1";
}

/// Main gradients are fp32 unless asked otherwise; a dynamic loss scale looks for infinite gradients itself.
void resolve_precision(Settings& settings) {
  TrainingConfig& training = settings.training;
  const bool has_16_bits = training.bf16 || training.fp16;
  if (has_16_bits && !training.grad_reduce_in_bf16 && settings.optimizer.main_grads_dtype == "fp32")
    training.accumulate_allreduce_grads_in_fp32 = true;
  if (training.fp16 && training.loss_scale.loss_scale.value_or(0) == 0) training.check_for_nan_in_loss_and_grad = false;
}

}  // namespace

void resolve(TransformerConfig& model) {
  if (model.ffn_hidden_size == 0) model.ffn_hidden_size = default_ffn_hidden_size(model);
  if (model.kv_channels == 0 && model.num_attention_heads > 0) model.kv_channels = model.hidden_size / model.num_attention_heads;
  if (!model.group_query_attention) model.num_query_groups = model.num_attention_heads;
  if (model.position_embedding_type == PositionEmbedding::yarn) model.rope_scaling_type = RopeScaling::yarn;
  resolve_window_layers(model);
}

void resolve(Settings& settings, std::int64_t data_parallel_size) {
  resolve(settings.model);
  TrainingConfig& training = settings.training;
  resolve_batches(training, data_parallel_size);
  if (settings.model.max_position_embeddings == 0) settings.model.max_position_embeddings = training.seq_length;
  if (settings.model.vocab_size == 0) settings.model.vocab_size = settings.tokenizer.vocab_size.value_or(0);
  resolve_precision(settings);
  resolve_data(settings.data);
}

std::optional<std::array<double, 3>> split_shares(const std::string& split) {
  std::string text = split;
  std::replace_if(
      text.begin(), text.end(), [](char c) { return std::string_view("/;:\t").find(c) != std::string_view::npos; }, ',');
  const auto parts = split_numbers(std::vector<std::string>{text});
  if (parts.empty() || parts.size() > 3) return std::nullopt;
  std::array<double, 3> shares{};
  try {
    for (std::size_t i = 0; i < parts.size(); ++i) shares[i] = number_value(parts[i]);
  } catch (const FieldError&) {
    return std::nullopt;
  }
  const bool positive = std::all_of(shares.begin(), shares.end(), [](double share) { return share >= 0; });
  if (!positive || shares[0] + shares[1] + shares[2] <= 0) return std::nullopt;
  return shares;
}

}  // namespace megatron
