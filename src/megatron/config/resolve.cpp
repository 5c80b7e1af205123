#include "megatron/config/resolve.h"

#include <algorithm>
#include <cctype>

#include "megatron/config/batch_schedule.h"
#include "megatron/config/byte_count.h"
#include "megatron/config/data_config.h"
#include "megatron/config/field_values.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/config/zero_stage.h"

namespace megatron {
namespace {

/// Returns the MLP size of Megatron-LM: 8/3 of the hidden size, rounded down to a multiple of 64,
/// for gated MLPs other than --quick-geglu, else 4 x the hidden size.
std::int64_t default_ffn_hidden_size(const TransformerConfig& model) {
  if (model.hidden_size > kMaxSize) return 0;  // validate_model() reports it
  return model.gated_linear_unit && model.activation != Activation::quick_gelu
             ? model.hidden_size * 8 / 3 / 64 * 64
             : 4 * model.hidden_size;
}

void resolve_batches(TrainingConfig& training, std::int64_t data_parallel_size) {
  try {
    const NumMicrobatchesCalculator batches(training, data_parallel_size);
    training.global_batch_size = batches.final_batch_size();
    if (training.train_iters == 0)
      training.train_iters = batches.iterations_for(training.train_samples);
    std::erase_if(training.phase_transition_iterations, [&](std::int64_t iteration) {
      return training.train_iters > 0 && iteration >= training.train_iters;
    });
  } catch (const UserError&) {
    return;  // validate_run() reports it
  }
}

void resolve_data(DataConfig& data) {
  const bool is_blend = !data.data_path.empty() || !data.data_args_path.empty();
  if (!has_paths(data)) {
    data.mock_data = true;
    if (data.split.empty()) data.split = "1,1,1";
  }
  if (is_blend && data.split.empty()) data.split = "969, 30, 1";
  if (data.sft)  // attention and positions restart with each conversation
    data.reset_attention_mask = data.reset_position_ids = data.eod_mask_loss =
        data.dataloader_inter_document_masking = false;
}

/// Sets fp32 main gradients unless another type is given, and disables the check for infinite
/// gradients with a dynamic loss scale, which detects them itself.
void resolve_precision(Settings& settings) {
  TrainingConfig& training = *settings.training;
  const bool has_16_bits = training.bf16 || training.fp16;
  if (!has_16_bits) training.loss_scale.loss_scale.reset();
  if (!training.bf16) training.grad_reduce_in_bf16 = false;
  if (training.grad_reduce_in_bf16) training.accumulate_allreduce_grads_in_fp32 = false;
  if (has_16_bits && !training.grad_reduce_in_bf16 &&
      settings.optimizer->main_grads_dtype == "fp32")
    training.accumulate_allreduce_grads_in_fp32 = true;
  if (training.fp16 && training.loss_scale.loss_scale.value_or(0) == 0)
    training.check_for_nan_in_loss_and_grad = false;
}

/// Replaces the short names of a recomputation by what they stand for.
void resolve_recompute(MemoryConfig& memory) {
  RecomputeConfig& config = memory.recompute;
  const bool is_automatic =
      memory.memory_budget.empty() || is_automatic_budget(memory.memory_budget);
  if (memory.has_budget() && is_automatic) memory.memory_budget = "auto";
  if (config.moe_layer_recompute &&
      std::ranges::find(config.recompute_modules, "moe") == config.recompute_modules.end())
    config.recompute_modules.emplace_back("moe");
  if (config.recompute_granularity.empty() &&
      (config.recompute_activations || config.moe_layer_recompute))
    config.recompute_granularity = "selective";
  if (config.recompute_granularity == "selective" && config.recompute_modules.empty())
    config.recompute_modules = {"core_attn"};
}

}  // namespace

void resolve(TransformerConfig& model) {
  if (model.ffn_hidden_size == 0) model.ffn_hidden_size = default_ffn_hidden_size(model);
  if (model.kv_channels == 0 && model.num_attention_heads > 0)
    model.kv_channels = model.hidden_size / model.num_attention_heads;
  if (!model.group_query_attention) model.num_query_groups = model.num_attention_heads;
  if (model.position_embedding_type == PositionEmbedding::yarn)
    model.rope_scaling_type = RopeScaling::yarn;
  if (model.moe.num_experts > 0 && model.moe.ffn_hidden_size == 0)
    model.moe.ffn_hidden_size = model.ffn_hidden_size;
  if (model.no_rope_freq == "0") model.no_rope_freq.clear();
  resolve_layers(model);
  MambaConfig& mamba = model.mamba;
  if (has_mixer(model, MixerKind::mamba) && mamba.num_heads == 0 && mamba.head_dim > 0 &&
      2 * model.hidden_size % mamba.head_dim == 0)  // else a rule reports it
    mamba.num_heads = model.recurrent_sizes(MixerKind::mamba).heads;
}

void resolve(Settings& settings, std::int64_t data_parallel_size) {
  resolve(*settings.model);
  set_comm_types(*settings.model, settings.parallel->cp_comm_type);
  TrainingConfig& training = *settings.training;
  resolve_batches(training, data_parallel_size);
  if (settings.model->max_position_embeddings == 0)
    settings.model->max_position_embeddings =
        std::max(training.seq_length, settings.data->decoder_seq_length) +
        settings.model->position_offset;
  const TokenizerConfig& tokenizer = *settings.tokenizer;
  if (settings.model->vocab_size == 0)
    settings.model->vocab_size = tokenizer.padded_vocab_size.value_or(
        tokenizer.vocab_size ? *tokenizer.vocab_size + settings.data->vocab_extra_ids : 0);
  if (settings.parallel->tensor_model_parallel_size == 1)
    settings.parallel->sequence_parallel = settings.parallel->tp_comm_overlap = false;
  settings.parallel->use_distributed_optimizer = zero_stage(*settings.parallel) > 0;
  resolve_precision(settings);
  resolve_recompute(*settings.memory);
  OffloadConfig& offload = settings.memory->offload;
  if (offload.cpu_offloading_num_layers > 0) offload.cpu_offloading = true;
  if (!offload.cpu_offloading) offload.cpu_offloading_weights = false;
  if (offload.optimizer_offload_fraction == 0) offload.optimizer_cpu_offload = false;
  if (offload.activation_offload_fraction == 0) offload.fine_grained_activation_offloading = false;
  resolve_data(*settings.data);
}

bool uses_sample_schedule(const SchedulerConfig& scheduler) {
  return scheduler.lr_decay_samples || scheduler.lr_wsd_decay_samples ||
         scheduler.lr_warmup_samples > 0;
}

bool has_paths(const DataConfig& data) {
  return !data.data_path.empty() || !data.train_data_path.empty() ||
         !data.valid_data_path.empty() || !data.test_data_path.empty() ||
         !data.data_args_path.empty() || !data.per_split_data_args_path.empty();
}

std::optional<std::array<double, 3>> split_weights(const std::string& split) {
  const auto is_numeric = [](char c) { return c == '.' || (c >= '0' && c <= '9'); };
  const auto is_refused = [](unsigned char c) {
    return c == '-' || c > 127 || std::isalpha(c) != 0;
  };
  if (std::any_of(split.begin(), split.end(), is_refused)) return std::nullopt;
  std::array<double, 3> shares{};
  std::size_t count = 0;
  for (auto first = std::find_if(split.begin(), split.end(), is_numeric); first != split.end();) {
    const auto last = std::find_if_not(first, split.end(), is_numeric);
    if (count == shares.size()) return std::nullopt;
    try {
      shares[count++] = number_value(std::string(first, last));
    } catch (const FieldError&) {
      return std::nullopt;
    }
    first = std::find_if(last, split.end(), is_numeric);
  }
  const auto commas = static_cast<std::size_t>(std::ranges::count(split, ','));
  const bool has_gap = commas > 0 && commas + 1 != count;
  if (has_gap || shares[0] + shares[1] + shares[2] <= 0) return std::nullopt;
  return shares;
}

}  // namespace megatron
