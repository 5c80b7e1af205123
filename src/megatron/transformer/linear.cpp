#include "megatron/transformer/linear.h"

#include <ATen/ops/sum.h>

#include "megatron/base/error.h"
#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/matrix_product.h"
#include "megatron/transformer/row_operations.h"

namespace megatron {
namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

/// Adds dyᵀ·x to the main gradient of `weight` and the column sums of dy to that of `bias`.
void contribute_gradients(Parameter& weight, Parameter* bias, const at::Tensor& dy, const at::Tensor& x) {
  weight.contribute([dy, x](at::Tensor& grad, bool fresh) { matrix_product_into(grad, dy.t(), x, /*accumulate=*/!fresh); });
  if (bias != nullptr) bias->contribute(at::sum(dy, {0}, /*keepdim=*/false, compute_type(dy.scalar_type())));
}

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& /*anchor*/, Parameter* weight, Parameter* bias) {
    context->save_for_backward({x});
    save_pointer(context, "weight", weight);
    save_pointer(context, "bias", bias);
    const at::Tensor y = matrix_product(rows_of(x), weight->value().t(), x.scalar_type(), bias != nullptr ? bias->value() : at::Tensor());
    auto shape = x.sizes().vec();
    shape.back() = weight->value().size(0);
    return y.view(shape);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    Parameter* weight = load_pointer<Parameter>(context, "weight");
    const at::Tensor dy = rows_of(gradients[0]);
    at::Tensor dx;
    if (context->needs_input_grad(0)) dx = matrix_product(dy, weight->value(), dy.scalar_type()).view(x.sizes());
    contribute_gradients(*weight, load_pointer<Parameter>(context, "bias"), dy, rows_of(x));
    return {dx, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias) {
  MEGATRON_CHECK(x.size(-1) == weight.value().size(1), weight.name(), " takes ", weight.value().size(1), " features, got ", x.size(-1));
  return Linear::apply(x.to(weight.value().scalar_type()), gradient_anchor(), &weight, bias);
}

}  // namespace megatron
