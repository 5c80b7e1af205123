#include "megatron/nn/norm.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/norm_rows.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// Returns the weight in the dtype of the statistics.
at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(compute_type(tensor.scalar_type()));
}

NormParams formula_of(const NormWeights& weights) {
  const at::Tensor weight = widened(weights.weight->precise_value()).contiguous();
  const bool centred = weights.options.kind == Normalization::LayerNorm;
  return {.weight = weight,
          .bias = weights.bias != nullptr ? widened(weights.bias->precise_value()).contiguous()
                  : centred               ? at::zeros_like(weight)
                                          : at::Tensor(),
          .epsilon = weights.options.epsilon,
          .offset = weights.options.weight_plus_one ? 1.0 : 0.0};
}

/// Returns {normalised}, or {sum, normalised} with `passes_sum`; backward then adds the gradient of
/// the sum. `branch` may be null.
Tensors stream_norm(const at::Tensor& input, const DropoutBranch* branch,
                    const NormWeights& weights, bool passes_sum) {
  const at::Tensor added = branch != nullptr ? branch->x : at::Tensor();
  Recording recording({.name = "NormBackward",
                       .trains_parameters = any_trained({weights.weight, weights.bias}),
                       .allows_undefined_gradients = true},
                      {input, added});
  const at::Tensor stream = input.contiguous();
  const NormRows rows =
      norm_rows(stream, branch, formula_of(weights), weights.weight->value().scalar_type());
  Recorded recorded{.outputs = {rows.y}, .saved = {rows.sum, rows.mean, rows.rstd}};
  if (passes_sum) {
    recorded.outputs = {branch != nullptr ? rows.sum : input, rows.y};
    recorded.num_differentiable = 2;
  }
  recorded.recompute_last = [weights, type = rows.y.scalar_type()](const Tensors& saved) {
    return norm_rows(saved[0], nullptr, formula_of(weights), type).y;
  };
  std::optional<DropoutBranch> kept;
  if (branch != nullptr) kept = {.x = {}, .site = branch->site};
  recorded.backward = [weights, kept](BackwardPass& pass) -> Tensors {
    const NormRows rows{
        .sum = pass.saved[0], .y = {}, .mean = pass.saved[1], .rstd = pass.saved[2]};
    const at::Tensor dy =
        pass.gradients.back().defined()
            ? pass.gradients.back()
            : at::zeros(rows.sum.sizes(),
                        rows.sum.options().dtype(weights.weight->value().scalar_type()));
    const at::Tensor dsum = pass.gradients.size() == 2 ? pass.gradients[0] : at::Tensor();
    NormGradients found =
        norm_rows_backward(dy, dsum, rows, kept ? &*kept : nullptr, formula_of(weights));
    weights.weight->contribute(found.dweight);
    if (weights.bias != nullptr) weights.bias->contribute(found.dbias);
    return {found.dsum, found.dbranch};
  };
  return recording.finish(std::move(recorded));
}

}  // namespace

NormOptions norm_options(const TransformerConfig& config) {
  return {.kind = config.normalization,
          .epsilon = config.norm_epsilon,
          .weight_plus_one = config.apply_layernorm_1p};
}

at::Tensor norm(const at::Tensor& x, Parameter& weight, Parameter* bias,
                const NormOptions& options) {
  return stream_norm(x, nullptr, {&weight, bias, options}, /*passes_sum=*/false).front();
}

SumAndNorm norm_with_residual(const at::Tensor& x, const NormWeights& weights) {
  if (weights.weight == nullptr) return {x, x};
  const Tensors both = stream_norm(x, nullptr, weights, /*passes_sum=*/true);
  return {both[0], both[1]};
}

SumAndNorm dropout_add_norm(const at::Tensor& stream, const at::Tensor& branch,
                            const DropoutSite& site, const NormWeights& weights) {
  if (weights.weight == nullptr) {
    const at::Tensor sum = dropout_add(branch, stream, site);
    return {sum, sum};
  }
  const DropoutBranch added{.x = branch, .site = site};
  const Tensors both = stream_norm(stream, &added, weights, /*passes_sum=*/true);
  return {both[0], both[1]};
}

ParameterSpec norm_weight_spec(const TransformerConfig& config, std::int64_t size, const Rank& rank,
                               NormInput place) {
  ParameterSpec spec = norm_bias_spec(size, rank, place);
  if (!config.apply_layernorm_1p) spec.init = Init::ones();
  return spec;
}

ParameterSpec norm_bias_spec(std::int64_t size, const Rank& rank, NormInput place) {
  const bool on_heads = place == NormInput::heads;
  return {.sharding = Sharding::replicated({size},
                                           /*sums_gradients=*/on_heads || rank.sequence_parallel),
          .init = Init::zeros(),
          .tags = {.no_decay = true, .qk_norm = on_heads, .precise = true}};
}

Norm::Norm(Module* parent, std::string_view name, const TransformerConfig& config,
           std::int64_t size, const Rank& rank, NormInput place)
    : Module(parent, name),
      weight_(declare("weight", norm_weight_spec(config, size, rank, place), rank.tp)),
      bias_(config.has_norm_bias() ? &declare("bias", norm_bias_spec(size, rank, place), rank.tp)
                                   : nullptr),
      options_(norm_options(config)) {}

}  // namespace megatron
