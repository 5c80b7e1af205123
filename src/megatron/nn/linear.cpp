#include "megatron/nn/linear.h"

#include <optional>

#include "megatron/base/error.h"
#include "megatron/ops/column_sums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/collectives.h"

namespace megatron {
namespace {

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

using Input = LinearExchange::Input;
using Output = LinearExchange::Output;

/// The arguments of one linear() call.
struct LinearCall {
  Parameter* weight;
  Parameter* bias;  ///< null when there is no bias
  LinearExchange exchange;
  std::optional<BiasActivation> activation;  ///< applied to x before the GEMM

  RowGroup group() const {
    return {weight->axis(), exchange.options.overlap_chunks, exchange.what};
  }
};

/// Runs the forward pass on rows.
at::Tensor gemm(const LinearCall& call, const at::Tensor& x) {
  const at::Tensor w = call.weight->value().t(),
                   b = call.bias != nullptr ? call.bias->value() : at::Tensor();
  if (call.exchange.output != Output::own) {
    at::Tensor y =
        matmul_reduce(x, w, call.exchange.output == Output::reduce_scattered, call.group());
    return b.defined() ? y.add_(b) : y;
  }
  return call.exchange.input == Input::gathered ? all_gather_matmul(x, w, b, call.group())
                                                : matmul(x, w, x.scalar_type(), b);
}

at::Tensor forward(const LinearCall& call, const at::Tensor& x) {
  const std::int64_t ranks = call.weight->axis().size;
  const at::Tensor y = gemm(
      call, rows_of(call.activation
                        ? bias_activation(x, call.activation->bias_value(), call.activation->form)
                        : x));
  auto shape = x.sizes().vec();
  if (call.exchange.input == Input::gathered) shape.front() *= ranks;
  if (call.exchange.output == Output::reduce_scattered) shape.front() /= ranks;
  shape.back() = y.size(1);
  return y.view(shape);
}

/// Returns the gradient of x, undefined when it is not needed, and contributes the gradients of the
/// weights.
at::Tensor backward(const LinearCall& call, const at::Tensor& x, const at::Tensor& gradient,
                    bool needs_input) {
  const LinearExchange& exchange = call.exchange;
  Parameter& weight = *call.weight;
  const Axis& axis = weight.axis();
  const bool gathered = exchange.input == Input::gathered;

  at::Tensor dy = rows_of(gradient), dx;
  if (any_trained({call.bias})) call.bias->contribute(column_sums(dy));
  PendingTensor all_x =
      gathered ? start_all_gather(axis, rows_of(x), exchange.what) : PendingTensor{rows_of(x)};
  if (exchange.output == Output::reduce_scattered) {
    at::Tensor all_dy;
    dx = all_gather_matmul(dy, weight.value(), {}, call.group(), &all_dy);
    dy = all_dy;
  } else if (needs_input || call.activation) {
    dx = matmul(dy, weight.value(), dy.scalar_type());
  }
  at::Tensor x_rows = all_x.wait();
  if (call.activation) {
    at::Tensor activated;
    dx = activation_backward(dx, x_rows, *call.activation, &activated);
    x_rows = activated;
  }
  PendingTensor sent{dx};
  if (dx.defined() && exchange.input != Input::own)
    sent = gathered ? start_reduce_scatter(axis, dx, exchange.what)
                    : start_all_reduce_(axis, dx, exchange.what);
  if (!exchange.options.async_allreduce) sent.wait();
  weight.contribute([dy, x_rows](at::Tensor& grad, bool fresh) {
    matmul_out(grad, dy.t(), x_rows, /*accumulate=*/!fresh);
  });
  dx = sent.wait();
  return dx.defined() ? dx.view(x.sizes()) : dx;
}

at::Tensor differentiable_linear(const at::Tensor& input, const LinearCall& call) {
  const Parameter* activation_bias = call.activation ? call.activation->bias : nullptr;
  Recording recording({.name = "LinearBackward",
                       .trains_parameters = any_trained({call.weight, call.bias, activation_bias})},
                      {input});
  const at::Tensor x = call.activation ? input.contiguous() : input;
  recording.save({x});
  return recording.finish(forward(call, x), {}, [call](BackwardPass& pass) -> Tensors {
    return {backward(call, pass.saved[0], pass.gradients[0], pass.needs_input[0])};
  });
}

void check_features(std::int64_t features, const Parameter& weight) {
  MEGATRON_CHECK(features == weight.value().size(1), weight.name(), " takes ",
                 weight.value().size(1), " features, got ", features);
}

/// An axis of size 1 has no exchange.
LinearExchange effective(const LinearExchange& exchange, const Parameter& weight) {
  return weight.axis().size == 1 ? LinearExchange{} : exchange;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias,
                  const LinearExchange& exchange) {
  check_features(x.size(-1), weight);
  return differentiable_linear(x.to(weight.value().scalar_type()),
                               {&weight, bias, effective(exchange, weight), std::nullopt});
}

at::Tensor activated_linear(const at::Tensor& x, const BiasActivation& activation,
                            Parameter& weight, Parameter* bias, const LinearExchange& exchange) {
  check_features(activation.form.gated ? x.size(-1) / 2 : x.size(-1), weight);
  MEGATRON_CHECK(exchange.input == LinearExchange::Input::own,
                 "a GEMM of activated rows takes its own rows");
  return differentiable_linear(x.to(weight.value().scalar_type()),
                               {&weight, bias, effective(exchange, weight), activation});
}

}  // namespace megatron
