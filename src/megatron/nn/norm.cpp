#include "megatron/nn/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

#include "megatron/ops/differentiable.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/norm_rows.h"
#include "megatron/ops/row_operations.h"

namespace megatron {
namespace {

/// Returns the weight in the dtype of the statistics.
at::Tensor widened(const at::Tensor& tensor) {
  return tensor.to(compute_type(tensor.scalar_type()));
}

at::Tensor effective_weight(const Parameter& weight, bool plus_one) {
  return plus_one ? widened(weight.precise_value()) + 1 : widened(weight.precise_value());
}

std::optional<at::Tensor> effective_bias(const Parameter* bias) {
  return bias != nullptr ? std::optional(widened(bias->precise_value())) : std::nullopt;
}

/// LayerNorm of accelerators, by ATen.
at::Tensor layer_norm(const at::Tensor& x, Parameter& weight, Parameter* bias,
                      const NormOptions& options) {
  return differentiable(
             {.name = "LayerNormBackward", .trains_parameters = true}, {x},
             [&] {
               auto [y, mean, rstd] = at::native_layer_norm(
                   widened(x), {x.size(-1)}, effective_weight(weight, options.weight_plus_one),
                   effective_bias(bias), options.epsilon);
               return Recorded{.outputs = {y.to(weight.value().scalar_type())},
                               .saved = {x, mean, rstd},
                               .backward = [&weight, bias, plus_one = options.weight_plus_one](
                                               BackwardPass& pass) -> Tensors {
                                 // ATen sums weight gradients in the dtype of x.
                                 const at::Tensor wide = widened(pass.saved[0]);
                                 auto [dx, dweight, dbias] = at::native_layer_norm_backward(
                                     pass.gradients[0].to(wide.scalar_type()).contiguous(), wide,
                                     {wide.size(-1)}, pass.saved[1], pass.saved[2],
                                     effective_weight(weight, plus_one), effective_bias(bias),
                                     {true, true, bias != nullptr});
                                 weight.contribute(dweight);
                                 if (bias != nullptr) bias->contribute(dbias);
                                 return {dx.to(pass.saved[0].scalar_type())};
                               }};
             })
      .front();
}

/// RMSNorm of accelerators, by our kernel.
at::Tensor rms_norm(const at::Tensor& input, Parameter& weight, const NormOptions& options) {
  return differentiable({.name = "RmsNormBackward", .trains_parameters = true}, {input},
                        [&] {
                          const at::Tensor x = input.contiguous();
                          const double offset = options.weight_plus_one ? 1.0 : 0.0;
                          auto [y, rstd] =
                              rms_norm_rows(x, widened(weight.precise_value()),
                                            weight.value().scalar_type(), options.epsilon, offset);
                          return Recorded{
                              .outputs = {y},
                              .saved = {x, rstd},
                              .backward = [&weight, offset](BackwardPass& pass) -> Tensors {
                                auto [dx, dweight] = rms_norm_rows_backward(
                                    pass.gradients[0].contiguous(), pass.saved[0],
                                    widened(weight.precise_value()), pass.saved[1], offset);
                                weight.contribute(dweight);
                                return {dx};
                              }};
                        })
      .front();
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

/// The branch that the CPU's norm adds to the residual stream first. `branch` may be undefined.
struct StreamBranch {
  at::Tensor branch;
  DropoutSite site;
  std::int64_t s_start = 0;

  std::optional<DropoutBranch> dropped(const at::Tensor& stream, const at::Tensor& x) const {
    return DropoutBranch{x, hidden_coordinates(stream, site, s_start), dropout_rule(site)};
  }
};

/// The CPU's fused norm. Returns {normalised}, or {sum, normalised} with `passes`; backward then
/// adds the gradient of the returned sum.
Tensors stream_norm(const at::Tensor& input, const StreamBranch& added, const NormWeights& weights,
                    bool passes) {
  const DifferentiableOp op{
      .name = "StreamNormBackward", .trains_parameters = true, .allows_undefined_gradients = true};
  return differentiable(op, {input, added.branch}, [&] {
    const at::Tensor stream = input.contiguous();
    const bool has_branch = added.branch.defined();
    const auto branch =
        has_branch ? added.dropped(stream, added.branch.contiguous()) : std::nullopt;
    const NormRows rows = norm_rows(stream, branch ? &*branch : nullptr, formula_of(weights),
                                    weights.weight->value().scalar_type());
    Recorded recorded{
        .outputs = {rows.y}, .saved = {rows.sum, rows.mean, rows.rstd}, .backward = {}};
    if (passes) {
      recorded.outputs = {has_branch ? rows.sum : input, rows.y};
      recorded.num_differentiable = 2;
    }
    recorded.backward = [weights, has_branch, site = added.site,
                         s_start = added.s_start](BackwardPass& pass) -> Tensors {
      const at::Tensor &sum = pass.saved[0], &given = pass.gradients.back();
      const at::Tensor dy =
          given.defined()
              ? given.contiguous()
              : at::zeros(sum.sizes(), sum.options().dtype(weights.weight->value().scalar_type()));
      const at::Tensor residual_grad = pass.gradients.size() == 2 && pass.gradients[0].defined()
                                           ? pass.gradients[0].contiguous()
                                           : at::Tensor();
      const auto branch =
          has_branch ? StreamBranch{.branch = {}, .site = site, .s_start = s_start}.dropped(sum, {})
                     : std::nullopt;
      NormGradients found = norm_rows_backward(
          dy, residual_grad, {.sum = sum, .y = {}, .mean = pass.saved[1], .rstd = pass.saved[2]},
          branch ? &*branch : nullptr, formula_of(weights));
      weights.weight->contribute(found.dweight);
      if (weights.bias != nullptr) weights.bias->contribute(found.dbias);
      return {found.dsum, found.dbranch};
    };
    return recorded;
  });
}

}  // namespace

NormOptions norm_options(const TransformerConfig& config) {
  return {.kind = config.normalization,
          .epsilon = config.norm_epsilon,
          .weight_plus_one = config.apply_layernorm_1p};
}

at::Tensor norm(const at::Tensor& x, Parameter& weight, Parameter* bias,
                const NormOptions& options) {
  if (x.is_cpu()) return stream_norm(x, {}, NormWeights{&weight, bias, options}, false)[0];
  return options.kind == Normalization::RMSNorm ? rms_norm(x, weight, options)
                                                : layer_norm(x, weight, bias, options);
}

SumAndNorm norm_with_residual(const at::Tensor& stream, const NormWeights& weights) {
  if (weights.weight == nullptr) return {stream, stream};
  if (!stream.is_cpu())
    return {stream, norm(stream, *weights.weight, weights.bias, weights.options)};
  const Tensors both = stream_norm(stream, {}, weights, true);
  return {both[0], both[1]};
}

SumAndNorm dropout_add_norm(const at::Tensor& stream, const at::Tensor& branch,
                            const DropoutSite& site, std::int64_t s_start,
                            const NormWeights& weights) {
  if (weights.weight == nullptr || !stream.is_cpu())
    return norm_with_residual(dropout_add(branch, stream, site, s_start), weights);
  const Tensors both = stream_norm(stream, {branch, site, s_start}, weights, true);
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
  return {.sharding = Sharding::replicated({size}),
          .init = Init::zeros(),
          .tags = {.no_decay = true, .qk_norm = on_heads, .precise = true},
          .sum_over_tp = on_heads || rank.sequence_parallel};
}

Norm::Norm(Module* parent, std::string_view name, const TransformerConfig& config,
           std::int64_t size, const Rank& rank, NormInput place)
    : Module(parent, name),
      weight_(declare("weight", norm_weight_spec(config, size, rank, place), rank.tp)),
      bias_(config.normalization == Normalization::LayerNorm
                ? &declare("bias", norm_bias_spec(size, rank, place), rank.tp)
                : nullptr),
      options_(norm_options(config)) {}

}  // namespace megatron
