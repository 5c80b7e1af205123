#include "megatron/transformer/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include <optional>

#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/fixed_blocks.h"
#include "megatron/transformer/row_operations.h"

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

/// What ATen normalises with float32 weights: on the processor also 16-bit rows (statistics in float32), elsewhere rows of the weights' dtype.
at::Tensor normalisable(const at::Tensor& x) { return x.is_cpu() ? x : widened(x); }

/// Σ over rows of dy·(x − mean)·rstd, and of dy. ATen adds each thread's rows first; here a column is added in one order.
std::pair<at::Tensor, at::Tensor> weight_gradients_in_fixed_order(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& mean,
                                                                  const at::Tensor& rstd) {
  const at::Tensor rows = dy.reshape({-1, dy.size(-1)}).to(mean.scalar_type());
  const at::Tensor normalised = ((x - mean) * rstd).reshape(rows.sizes());
  return {(rows * normalised).sum(0), rows.sum(0)};
}

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*anchor*/, Parameter* weight, Parameter* bias,
                            double epsilon, bool plus_one) {
    auto [y, mean, rstd] = at::native_layer_norm(normalisable(x), {x.size(-1)}, effective_weight(*weight, plus_one), effective_bias(bias), epsilon);
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
    const bool in_fixed_order = wants_determinism() && x.is_cpu();
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(gradients[0].to(x.scalar_type()).contiguous(), x, {x.size(-1)}, saved[1], saved[2],
                                                               effective_weight(*weight, context->saved_data["plus_one"].toBool()),
                                                               effective_bias(bias), {true, !in_fixed_order, !in_fixed_order && bias != nullptr});
    if (in_fixed_order) std::tie(dweight, dbias) = weight_gradients_in_fixed_order(gradients[0], x, saved[1], saved[2]);
    weight->contribute(dweight);
    if (bias != nullptr) bias->contribute(dbias);
    return {dx.to(saved[0].scalar_type()), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

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

}  // namespace

NormOptions norm_options(const TransformerConfig& config) {
  return {.kind = config.normalization, .epsilon = config.norm_epsilon, .weight_plus_one = config.apply_layernorm_1p};
}

at::Tensor norm(const at::Tensor& x, Parameter& weight, Parameter* bias, const NormOptions& options) {
  if (options.kind == Normalization::RMSNorm)
    return RmsNorm::apply(x, gradient_anchor(), &weight, options.epsilon, options.weight_plus_one ? 1.0 : 0.0);
  return LayerNorm::apply(x, gradient_anchor(), &weight, bias, options.epsilon, options.weight_plus_one);
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
