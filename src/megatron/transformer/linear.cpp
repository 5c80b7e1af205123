#include "megatron/transformer/linear.h"

#include <optional>

#include "megatron/base/error.h"
#include "megatron/parallel/collectives.h"
#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/column_sums.h"
#include "megatron/transformer/matrix_product.h"

namespace megatron {
namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

struct Linear : torch::autograd::Function<Linear> {
  using Input = LinearExchange::Input;
  using Output = LinearExchange::Output;
  struct Plan {
    LinearExchange exchange;
    std::optional<BiasActivation> activation;  ///< of x, before the product
  };
  struct SavedPlan : torch::CustomClassHolder {
    explicit SavedPlan(const Plan& plan) : plan(plan) {}
    Plan plan;
  };

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*anchor*/, Parameter* weight, Parameter* bias,
                            const Plan& plan) {
    const LinearExchange& exchange = plan.exchange;
    const at::Tensor x = plan.activation ? input.contiguous() : input;
    context->save_for_backward({x});
    save_pointer(context, "weight", weight);
    save_pointer(context, "bias", bias);
    context->saved_data["plan"] = c10::IValue::make_capsule(c10::make_intrusive<SavedPlan>(plan));
    const at::Tensor y = product(rows_of(plan.activation ? activation_forward(x, *plan.activation) : x), *weight, bias, exchange);
    auto shape = x.sizes().vec();
    if (exchange.input == Input::gathered) shape.front() *= weight->axis().size;
    if (exchange.output == Output::reduce_scattered) shape.front() /= weight->axis().size;
    shape.back() = y.size(1);
    return y.view(shape);
  }

  /// Rows in, rows out.
  static at::Tensor product(const at::Tensor& x, const Parameter& weight, const Parameter* bias, const LinearExchange& exchange) {
    const RowGroup group{weight.axis(), exchange.options.overlap_chunks, exchange.what};
    const at::Tensor w = weight.value().t(), b = bias != nullptr ? bias->value() : at::Tensor();
    if (exchange.output != Output::own) {
      at::Tensor y = summed_product(x, w, exchange.output == Output::reduce_scattered, group);
      return b.defined() ? y.add_(b) : y;
    }
    return exchange.input == Input::gathered ? gathered_product(x, w, b, group) : matrix_product(x, w, x.scalar_type(), b);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    Parameter& weight = *load_pointer<Parameter>(context, "weight");
    Parameter* bias = load_pointer<Parameter>(context, "bias");
    const auto holder = context->saved_data["plan"].toCapsule();
    const Plan& plan = static_cast<const SavedPlan&>(*holder).plan;
    const LinearExchange& exchange = plan.exchange;
    const Axis& axis = weight.axis();
    const RowGroup group{axis, exchange.options.overlap_chunks, exchange.what};
    const bool gathered = exchange.input == Input::gathered;

    at::Tensor dy = rows_of(gradients[0]), dx;
    if (bias != nullptr) bias->contribute(column_sums(dy));
    PendingTensor all_x = gathered ? start_all_gather(axis, rows_of(x), exchange.what) : PendingTensor{rows_of(x)};
    if (exchange.output == Output::reduce_scattered) {
      at::Tensor all_dy;
      dx = gathered_product(dy, weight.value(), {}, group, &all_dy);
      dy = all_dy;
    } else if (context->needs_input_grad(0) || plan.activation) {
      dx = matrix_product(dy, weight.value(), dy.scalar_type());
    }
    at::Tensor x_rows = all_x.wait();
    if (plan.activation) {
      at::Tensor activated;
      dx = activation_backward(dx, x_rows, *plan.activation, &activated);
      x_rows = activated;
    }
    PendingTensor sent{dx};
    if (dx.defined() && exchange.input != Input::own)
      sent = gathered ? start_reduce_scatter(axis, dx, exchange.what) : start_all_reduce_(axis, dx, exchange.what);
    if (!exchange.options.async_allreduce) sent.wait();
    weight.contribute([dy, x_rows](at::Tensor& grad, bool fresh) { matrix_product_into(grad, dy.t(), x_rows, /*accumulate=*/!fresh); });
    dx = sent.wait();
    return {dx.defined() ? dx.view(x.sizes()) : dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void check_features(std::int64_t features, const Parameter& weight) {
  MEGATRON_CHECK(features == weight.value().size(1), weight.name(), " takes ", weight.value().size(1), " features, got ", features);
}

/// There is nobody to exchange with on an axis of size 1.
LinearExchange effective(const LinearExchange& exchange, const Parameter& weight) { return weight.axis().size == 1 ? LinearExchange{} : exchange; }

}  // namespace

at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias, const LinearExchange& exchange) {
  check_features(x.size(-1), weight);
  return Linear::apply(x.to(weight.value().scalar_type()), gradient_anchor(), &weight, bias, Linear::Plan{effective(exchange, weight), std::nullopt});
}

at::Tensor activated_linear(const at::Tensor& x, const BiasActivation& activation, Parameter& weight, Parameter* bias,
                            const LinearExchange& exchange) {
  check_features(activation.gated ? x.size(-1) / 2 : x.size(-1), weight);
  MEGATRON_CHECK(x.is_cpu() && exchange.input == LinearExchange::Input::own, "an activated product takes its own rows on the processor");
  return Linear::apply(x.to(weight.value().scalar_type()), gradient_anchor(), &weight, bias, Linear::Plan{effective(exchange, weight), activation});
}

}  // namespace megatron
