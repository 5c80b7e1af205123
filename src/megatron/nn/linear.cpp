// t ranks, m rows per rank. Rows are positions × samples, so a slice of the sequence is a run of
// rows. A chunk is the same run of rows in every rank's slice, so that each rank sends as much as
// it receives.
#include "megatron/nn/linear.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/ops/column_sums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/collectives.h"

namespace megatron {
namespace {

// ---- GEMMs that exchange rows ----

/// The axis of an exchange, the number of pieces it is divided into, and its name in the counters.
struct RowGroup {
  const Axis& axis;
  std::int64_t chunks = 1;
  const char* what = "linear";
};

struct Run {
  std::int64_t begin, count;
};

std::vector<Run> runs_of(std::int64_t rows, std::int64_t chunks) {
  chunks = std::clamp<std::int64_t>(chunks, 1, std::max<std::int64_t>(rows, 1));
  std::vector<Run> runs;
  for (std::int64_t index = 0; index < chunks; ++index) {
    const std::int64_t begin = rows * index / chunks;
    runs.push_back({begin, rows * (index + 1) / chunks - begin});
  }
  return runs;
}

/// Returns a chunk of x [t·m, k] as a view [t, count, k]: the same run of rows of every rank.
at::Tensor run_of_each(const at::Tensor& x, const Run& run, const Axis& axis) {
  return x.view({axis.size, -1, x.size(1)}).narrow(1, run.begin, run.count);
}

std::int64_t slice_rows(const at::Tensor& x, const Axis& axis) {
  MEGATRON_CHECK(x.size(0) % axis.size == 0, x.size(0), " rows cannot be split over ", axis.name,
                 "=", axis.size);
  return x.size(0) / axis.size;
}

at::Tensor summed_and_scattered(const at::Tensor& x, const GemmWeight& w,
                                const std::vector<Run>& runs, const RowGroup& group) {
  const at::Tensor out = at::empty({slice_rows(x, group.axis), w.value.size(0)}, x.options());
  std::vector<PendingTensor> under_way;
  for (const Run& run : runs) {
    const at::Tensor part =
        matmul(run_of_each(x, run, group.axis).reshape({-1, x.size(1)}), w, x.scalar_type());
    under_way.push_back(start_reduce_scatter(group.axis, part, group.what));
  }
  for (std::size_t i = 0; i < runs.size(); ++i)
    out.narrow(0, runs[i].begin, runs[i].count).copy_(under_way[i].wait());
  return out;
}

/// Returns all ranks' rows of x [m, k] times w [n, k]ᵀ, plus bias [n] or undefined: [size·m, n].
/// `all`, unless null, receives the gathered rows [size·m, k]. With several chunks, the GEMM of one
/// chunk overlaps the arrival of later ones.
at::Tensor all_gather_matmul(const at::Tensor& x, const GemmWeight& w, const at::Tensor& bias,
                             const RowGroup& group, at::Tensor* all = nullptr) {
  const std::vector<Run> runs = runs_of(x.size(0), group.chunks);
  const std::int64_t rows = x.size(0) * group.axis.size;
  if (runs.size() == 1) {
    const at::Tensor gathered = all_gather(group.axis, x, group.what);
    if (all != nullptr) *all = gathered;
    return matmul(gathered, w, x.scalar_type(), bias);
  }
  std::vector<PendingTensor> arriving;
  for (const Run& run : runs)
    arriving.push_back(start_all_gather(group.axis, x.narrow(0, run.begin, run.count), group.what));
  const at::Tensor y = at::empty({rows, w.value.size(0)}, x.options());
  if (all != nullptr) *all = at::empty({rows, x.size(1)}, x.options());
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto put = [&](const at::Tensor& whole, const at::Tensor& part) {
      run_of_each(whole, runs[i], group.axis)
          .copy_(part.view({group.axis.size, runs[i].count, -1}));
    };
    const at::Tensor piece = arriving[i].wait();
    put(y, matmul(piece, w, x.scalar_type(), bias));
    if (all != nullptr) put(*all, piece);
  }
  return y;
}

/// Returns the sum over the ranks of x [m, k] · w [n, k]ᵀ, or with `scatter` this rank's slice of
/// its rows. With several chunks, sending one chunk overlaps the GEMM of the next.
at::Tensor matmul_reduce(const at::Tensor& x, const GemmWeight& w, bool scatter,
                         const RowGroup& group) {
  const std::vector<Run> runs =
      runs_of(scatter ? slice_rows(x, group.axis) : x.size(0), group.chunks);
  if (runs.size() == 1) {
    at::Tensor part = matmul(x, w, x.scalar_type());
    if (scatter) return reduce_scatter(group.axis, part, group.what);
    all_reduce_(group.axis, part, group.what);
    return part;
  }
  if (scatter) return summed_and_scattered(x, w, runs, group);
  const at::Tensor out = at::empty({x.size(0), w.value.size(0)}, x.options());
  std::vector<PendingTensor> under_way;
  for (const Run& run : runs) {
    at::Tensor part = out.narrow(0, run.begin, run.count);
    matmul_out(part, x.narrow(0, run.begin, run.count), w);
    under_way.push_back(start_all_reduce_(group.axis, part, group.what));
  }
  for (PendingTensor& sum : under_way) sum.wait();
  return out;
}

// ---- linear() ----

/// Backward of activate(). Returns the gradient of x and contributes the gradient of the bias. If
/// `result` is not null, it receives the forward result.
at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& x,
                               const BiasActivation& activation, at::Tensor* result = nullptr) {
  BiasActivationGradients gradients = bias_activation_backward(
      dy, x, activation.bias_value(), activation.form, /*with_result=*/result != nullptr);
  if (result != nullptr) *result = gradients.y;
  if (activation.bias != nullptr) activation.bias->contribute(gradients.dbias);
  return gradients.dx;
}

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
  const GemmWeight w = call.weight->gemm_weight();
  const at::Tensor b = call.bias != nullptr ? call.bias->value() : at::Tensor();
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
    dx = all_gather_matmul(dy, {weight.value().t()}, {}, call.group(), &all_dy);
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
  const std::int64_t width = weight.gemm_weight().value.size(1);
  MEGATRON_CHECK(features == width, weight.name(), " takes ", width, " features, got ", features);
}

/// An axis of size 1 has no exchange.
LinearExchange effective(const LinearExchange& exchange, const Parameter& weight) {
  return weight.axis().size == 1 ? LinearExchange{} : exchange;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias,
                  const LinearExchange& exchange) {
  check_features(x.size(-1), weight);
  return differentiable_linear(x.to(weight.dtype()),
                               {&weight, bias, effective(exchange, weight), std::nullopt});
}

at::Tensor activated_linear(const at::Tensor& x, const BiasActivation& activation,
                            Parameter& weight, Parameter* bias, const LinearExchange& exchange) {
  check_features(activation.form.gated ? x.size(-1) / 2 : x.size(-1), weight);
  MEGATRON_CHECK(exchange.input == LinearExchange::Input::own,
                 "a GEMM of activated rows takes its own rows");
  return differentiable_linear(x.to(weight.dtype()),
                               {&weight, bias, effective(exchange, weight), activation});
}

at::Tensor BiasActivation::bias_value() const {
  return bias != nullptr ? bias->value() : at::Tensor();
}

at::Tensor activate(const at::Tensor& input, const BiasActivation& activation) {
  Recording recording(
      {.name = "ActivationBackward", .trains_parameters = any_trained({activation.bias})}, {input});
  const at::Tensor x = input.contiguous();
  return recording.finish(
      bias_activation(x, activation.bias_value(), activation.form), {x},
      [activation](BackwardPass& pass) -> Tensors {
        return {activation_backward(pass.gradients[0], pass.saved[0], activation)};
      });
}

}  // namespace megatron
