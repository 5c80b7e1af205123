#include "megatron/transformer/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/row_operations.h"

namespace megatron {
namespace {

at::Tensor effective_weight(const Parameter& weight, bool plus_one) { return plus_one ? weight.value() + 1 : weight.value(); }

struct LayerNorm : torch::autograd::Function<LayerNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*anchor*/, Parameter* weight, Parameter* bias,
                            double epsilon, bool plus_one) {
    auto [y, mean, rstd] = at::native_layer_norm(x, {x.size(-1)}, effective_weight(*weight, plus_one),
                                                 bias != nullptr ? std::optional(bias->value()) : std::nullopt, epsilon);
    context->save_for_backward({x, mean, rstd});
    save_pointer(context, "weight", weight);
    save_pointer(context, "bias", bias);
    context->saved_data["plus_one"] = plus_one;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    auto* weight = load_pointer<Parameter>(context, "weight");
    auto* bias = load_pointer<Parameter>(context, "bias");
    const at::Tensor& x = saved[0];
    auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        gradients[0].contiguous(), x, {x.size(-1)}, saved[1], saved[2], effective_weight(*weight, context->saved_data["plus_one"].toBool()),
        bias != nullptr ? std::optional(bias->value()) : std::nullopt, {true, true, bias != nullptr});
    weight->contribute(dweight);
    if (bias != nullptr) bias->contribute(dbias);
    return {dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*anchor*/, Parameter* weight, double epsilon,
                            double offset) {
    const at::Tensor x = input.contiguous();
    auto [y, rstd] = rms_norm_rows(x, weight->value(), epsilon, offset);
    context->save_for_backward({x, rstd});
    save_pointer(context, "weight", weight);
    context->saved_data["offset"] = offset;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto saved = context->get_saved_variables();
    auto* weight = load_pointer<Parameter>(context, "weight");
    auto [dx, dweight] =
        rms_norm_rows_backward(gradients[0].contiguous(), saved[0], weight->value(), saved[1], context->saved_data["offset"].toDouble());
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

ParameterSpec norm_weight_spec(const TransformerConfig& config, std::int64_t size, bool qk_norm) {
  return {.sharding = Sharding::replicated({size}),
          .init = config.apply_layernorm_1p ? Init::zeros() : Init::ones(),
          .tags = {.no_decay = true, .qk_norm = qk_norm}};
}

ParameterSpec norm_bias_spec(std::int64_t size, bool qk_norm) {
  return {.sharding = Sharding::replicated({size}), .init = Init::zeros(), .tags = {.no_decay = true, .qk_norm = qk_norm}};
}

Norm::Norm(Module* parent, std::string_view name, const TransformerConfig& config, std::int64_t size, const Axis& tp, bool qk_norm)
    : Module(parent, name),
      weight_(declare("weight", norm_weight_spec(config, size, qk_norm), tp)),
      bias_(config.normalization == Normalization::LayerNorm ? &declare("bias", norm_bias_spec(size, qk_norm), tp) : nullptr),
      options_(norm_options(config)) {}

}  // namespace megatron
