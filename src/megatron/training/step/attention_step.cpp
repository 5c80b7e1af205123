#include "megatron/training/step/attention_step.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>

#include <cmath>
#include <limits>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/attention.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

bool is_wanted(const TrainStepOptions& options) {
  return options.log_max_attention_logit || options.qk_clip;
}

std::vector<Attention*> attention_layers(Model& model) {
  std::vector<Attention*> layers;
  model.visit([&](Module& module) {
    if (auto* layer = dynamic_cast<Attention*>(&module)) layers.push_back(layer);
  });
  return layers;
}

/// Returns the largest score of each query group [layers, groups of the model] on the host.
at::Tensor largest_of_groups(const TrainStepContext& context,
                             const std::vector<Attention*>& layers) {
  const TransformerConfig& config = context.model.config();
  at::Tensor scores = at::full({std::ssize(layers), config.num_attention_heads},
                               -std::numeric_limits<float>::infinity(),
                               at::TensorOptions(at::kFloat).device(context.rank.device));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const at::Tensor own = layers[i]->take_max_scores();
    scores[static_cast<std::int64_t>(i)].narrow(0, layers[i]->first_head(), own.numel()).copy_(own);
  }
  if (layers.empty()) return scores;
  for (const Axis* axis : {&context.rank.tp, &context.rank.dp_cp})
    all_reduce_(*axis, scores, "largest attention scores", ReduceOp::max);
  return scores.view({std::ssize(layers), config.query_groups(), -1}).amax(-1).cpu();
}

/// Returns η of each query group of a layer; empty if no score is above the threshold.
std::vector<double> clip_factors(const at::Tensor& largest, double threshold) {
  std::vector<double> eta;
  bool clips = false;
  for (std::int64_t group = 0; group < largest.numel(); ++group) {
    const auto score = static_cast<double>(largest.const_data_ptr<float>()[group]);
    eta.push_back(score > threshold ? threshold / score : 1);
    clips = clips || score > threshold;
  }
  return clips ? eta : std::vector<double>();
}

/// Multiplies the rows of a weight [rows, columns] in the pieces of this rank.
void scale_rows(MainParameters& main, const Parameter& weight, const at::Tensor& factors) {
  const std::int64_t columns = weight.local_shape()[1];
  for (std::size_t i = 0; i < main.pieces().size(); ++i) {
    const ParameterPiece& piece = main.pieces()[i];
    if (piece.parameter != &weight) continue;
    const at::Tensor flat = main.read(i);
    main.write(i, flat * piece.of(factors.to(flat.options()).repeat_interleave(columns)));
  }
}

}  // namespace

void begin_attention_step(const TrainStepContext& context, const TrainStepOptions& options) {
  if (!is_wanted(options)) return;
  for (Attention* layer : attention_layers(context.model)) layer->record_max_scores();
}

std::optional<double> finish_attention_step(const TrainStepContext& context,
                                            const TrainStepOptions& options, bool applied) {
  if (!is_wanted(options)) return std::nullopt;
  const std::vector<Attention*> layers = attention_layers(context.model);
  const at::Tensor largest = largest_of_groups(context, layers);
  MainParameters& main = context.optimizer.main_parameters();
  bool clipped = false;
  for (std::size_t i = 0; i < layers.size() && applied && options.qk_clip; ++i) {
    const std::vector<double> eta =
        clip_factors(largest[static_cast<std::int64_t>(i)], options.qk_clip->threshold);
    if (eta.empty()) continue;
    if (!clipped) main.wait_all_gather_params();
    clipped = true;
    for (const auto& [weight, factors] : layers[i]->row_factors(eta, options.qk_clip->alpha))
      scale_rows(main, weight, factors);
  }
  // Ranks that share weights have the same scores, so they agree.
  if (clipped) main.copy_main_params_to_model_params();
  at::Tensor all = at::full(
      {},
      largest.numel() > 0 ? largest.max().item<double>() : -std::numeric_limits<double>::infinity(),
      at::TensorOptions(at::kDouble).device(context.rank.device));
  all_reduce_(context.rank.pp, all, "largest attention score", ReduceOp::max);
  return all.item<double>();
}

}  // namespace megatron
