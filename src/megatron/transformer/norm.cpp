#include "megatron/transformer/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <optional>

#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/dropout.h"
#include "megatron/transformer/norm_rows.h"
#include "megatron/transformer/row_operations.h"
#include "megatron/transformer/saved_site.h"

namespace megatron {
namespace {

/// In the dtype of statistics.
at::Tensor widened(const at::Tensor& tensor) { return tensor.to(compute_type(tensor.scalar_type())); }

at::Tensor effective_weight(const Parameter& weight, bool plus_one) {
  return plus_one ? widened(weight.precise_value()) + 1 : widened(weight.precise_value());
}

std::optional<at::Tensor> effective_bias(const Parameter* bias) {
  return bias != nullptr ? std::optional(widened(bias->precise_value())) : std::nullopt;
}

/// ATen's, of accelerators.
struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*anchor*/, Parameter* weight, Parameter* bias,
                            double epsilon, bool plus_one) {
    auto [y, mean, rstd] = at::native_layer_norm(widened(x), {x.size(-1)}, effective_weight(*weight, plus_one), effective_bias(bias), epsilon);
    context->save_for_backward({x, mean, rstd});
    save_pointer(context, "weight", weight);
    save_pointer(context, "bias", bias);
    context->saved_data["plus_one"] = plus_one;
    return y.to(weight->value().scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    auto* weight = load_pointer<Parameter>(context, "weight");
    auto* bias = load_pointer<Parameter>(context, "bias");
    const at::Tensor x = widened(saved[0]);  // ATen sums gradients of weights in the dtype of x
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(gradients[0].to(x.scalar_type()).contiguous(), x, {x.size(-1)}, saved[1], saved[2],
                                                               effective_weight(*weight, context->saved_data["plus_one"].toBool()),
                                                               effective_bias(bias), {true, true, bias != nullptr});
    weight->contribute(dweight);
    if (bias != nullptr) bias->contribute(dbias);
    return {dx.to(saved[0].scalar_type()), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// The kernel of accelerators.
struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*anchor*/, Parameter* weight, double epsilon,
                            double offset) {
    const at::Tensor x = input.contiguous();
    auto [y, rstd] = rms_norm_rows(x, widened(weight->precise_value()), weight->value().scalar_type(), epsilon, offset);
    context->save_for_backward({x, rstd});
    save_pointer(context, "weight", weight);
    context->saved_data["offset"] = offset;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    auto* weight = load_pointer<Parameter>(context, "weight");
    auto [dx, dweight] = rms_norm_rows_backward(gradients[0].contiguous(), saved[0], widened(weight->precise_value()), saved[1],
                                                context->saved_data["offset"].toDouble());
    weight->contribute(dweight);
    return {dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

NormFormula formula_of(const NormWeights& weights) {
  const at::Tensor weight = widened(weights.weight->precise_value()).contiguous();
  const bool centred = weights.options.kind == Normalization::LayerNorm;
  return {.weight = weight,
          .bias = weights.bias != nullptr ? widened(weights.bias->precise_value()).contiguous()
                  : centred               ? at::zeros_like(weight)
                                          : at::Tensor(),
          .epsilon = weights.options.epsilon,
          .offset = weights.options.weight_plus_one ? 1.0 : 0.0};
}

/// The processor's: {normalised}, or {sum, normalised} when `passes` the sum on, whose gradient from there is added in the norm's backward pass.
struct StreamNorm : torch::autograd::Function<StreamNorm> {
  static variable_list forward(AutogradContext* context, const at::Tensor& stream, const std::optional<at::Tensor>& branch,
                               const at::Tensor& /*anchor*/, const NormWeights& weights, bool passes, const DropoutSite& site, std::int64_t s_start) {
    const at::Tensor contiguous = stream.contiguous();
    const auto added =
        branch ? std::optional(DroppedBranch{branch->contiguous(), hidden_coordinates(stream, site, s_start), dropout_rule(site)}) : std::nullopt;
    const NormRows rows = norm_rows(contiguous, added ? &*added : nullptr, formula_of(weights), weights.weight->value().scalar_type());
    context->save_for_backward({rows.sum, rows.mean, rows.rstd});
    context->set_materialize_grads(false);
    save_pointer(context, "weight", weights.weight);
    save_pointer(context, "bias", weights.bias);
    context->saved_data["centred"] = weights.options.kind == Normalization::LayerNorm;
    context->saved_data["plus_one"] = weights.options.weight_plus_one;
    context->saved_data["has_branch"] = branch.has_value();
    context->saved_data["s_start"] = s_start;
    save_site(context, site);
    if (!passes) return {rows.y};
    return {branch ? rows.sum : stream, rows.y};
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    const NormWeights weights = load_weights(context);
    const at::Tensor dy = gradients.back().defined() ? gradients.back().contiguous()
                                                     : at::zeros(saved[0].sizes(), saved[0].options().dtype(weights.weight->value().scalar_type()));
    const at::Tensor passed = gradients.size() == 2 && gradients[0].defined() ? gradients[0].contiguous() : at::Tensor();
    const DropoutSite site = load_site(context);
    std::optional<DroppedBranch> branch;
    if (context->saved_data["has_branch"].toBool())
      branch = {at::Tensor(), hidden_coordinates(saved[0], site, context->saved_data["s_start"].toInt()), dropout_rule(site)};
    NormGradients found = norm_rows_backward(dy, passed, {.sum = saved[0], .y = {}, .mean = saved[1], .rstd = saved[2]}, branch ? &*branch : nullptr,
                                             formula_of(weights));
    weights.weight->contribute(found.dweight);
    if (weights.bias != nullptr) weights.bias->contribute(found.dbias);
    return {found.dsum, found.dbranch, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }

  static NormWeights load_weights(AutogradContext* context) {
    return {.weight = load_pointer<Parameter>(context, "weight"),
            .bias = load_pointer<Parameter>(context, "bias"),
            .options = {.kind = context->saved_data["centred"].toBool() ? Normalization::LayerNorm : Normalization::RMSNorm,
                        .weight_plus_one = context->saved_data["plus_one"].toBool()}};
  }
};

}  // namespace

NormOptions norm_options(const TransformerConfig& config) {
  return {.kind = config.normalization, .epsilon = config.norm_epsilon, .weight_plus_one = config.apply_layernorm_1p};
}

at::Tensor norm(const at::Tensor& x, Parameter& weight, Parameter* bias, const NormOptions& options) {
  if (x.is_cpu()) return StreamNorm::apply(x, std::nullopt, gradient_anchor(), NormWeights{&weight, bias, options}, false, DropoutSite{}, 0)[0];
  if (options.kind == Normalization::RMSNorm)
    return RmsNorm::apply(x, gradient_anchor(), &weight, options.epsilon, options.weight_plus_one ? 1.0 : 0.0);
  return LayerNorm::apply(x, gradient_anchor(), &weight, bias, options.epsilon, options.weight_plus_one);
}

SumAndNorm norm_of_stream(const at::Tensor& stream, const NormWeights& weights) {
  if (weights.weight == nullptr) return {stream, stream};
  if (!stream.is_cpu()) return {stream, norm(stream, *weights.weight, weights.bias, weights.options)};
  const variable_list both = StreamNorm::apply(stream, std::nullopt, gradient_anchor(), weights, true, DropoutSite{}, 0);
  return {both[0], both[1]};
}

SumAndNorm norm_of_sum(const at::Tensor& stream, const at::Tensor& branch, const DropoutSite& site, std::int64_t s_start,
                       const NormWeights& weights) {
  if (weights.weight == nullptr || !stream.is_cpu()) return norm_of_stream(dropout_add(branch, stream, site, s_start), weights);
  const variable_list both = StreamNorm::apply(stream, std::optional(branch), gradient_anchor(), weights, true, site, s_start);
  return {both[0], both[1]};
}

ParameterSpec norm_weight_spec(const TransformerConfig& config, std::int64_t size, const Rank& rank, NormPlace place) {
  ParameterSpec spec = norm_bias_spec(size, rank, place);
  if (!config.apply_layernorm_1p) spec.init = Init::ones();
  return spec;
}

ParameterSpec norm_bias_spec(std::int64_t size, const Rank& rank, NormPlace place) {
  const bool on_heads = place == NormPlace::heads;
  return {.sharding = Sharding::replicated({size}),
          .init = Init::zeros(),
          .tags = {.no_decay = true, .qk_norm = on_heads, .precise = true},
          .sum_over_tp = on_heads || rank.sequence_parallel};
}

Norm::Norm(Module* parent, std::string_view name, const TransformerConfig& config, std::int64_t size, const Rank& rank, NormPlace place)
    : Module(parent, name),
      weight_(declare("weight", norm_weight_spec(config, size, rank, place), rank.tp)),
      bias_(config.normalization == Normalization::LayerNorm ? &declare("bias", norm_bias_spec(size, rank, place), rank.tp) : nullptr),
      options_(norm_options(config)) {}

}  // namespace megatron
