#include "megatron/nn/moe/grouped_linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "megatron/ops/column_sums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/matmul.h"

namespace megatron {
namespace {

/// Returns the sums over the rows of each group, [groups, columns].
at::Tensor group_sums(const at::Tensor& x, const GroupRows& rows) {
  at::Tensor sums = at::zeros({static_cast<std::int64_t>(rows.size()), x.size(1)},
                              x.options().dtype(compute_type(x.scalar_type())));
  for_each_group(rows, [&](std::int64_t g, std::int64_t first, std::int64_t count) {
    if (count > 0) sums[g].copy_(column_sums(x.narrow(0, first, count)));
  });
  return sums;
}

void contribute_weight_gradient(Parameter& weight, const at::Tensor& dy, const at::Tensor& x,
                                const GroupRows& rows) {
  weight.contribute([dy, x, rows](at::Tensor& grad, bool fresh) {
    grouped_matmul_over_rows_out(grad, dy, x, rows, /*accumulate=*/!fresh);
  });
}

}  // namespace

at::Tensor grouped_linear(const at::Tensor& input, Parameter& weight, Parameter* bias,
                          const GroupRows& rows) {
  Recording recording(
      {.name = "GroupedLinearBackward", .trains_parameters = any_trained({&weight, bias})},
      {input});
  const at::Tensor x = input.contiguous();
  recording.save({x});
  const at::Tensor y = grouped_matmul(x, weight.gemm_weight(), rows, x.scalar_type(),
                                      bias != nullptr ? bias->value() : at::Tensor());
  return recording.finish(y, {}, [&weight, bias, rows](BackwardPass& pass) -> Tensors {
    const at::Tensor dy = pass.gradients[0].contiguous();
    if (any_trained({bias})) bias->contribute(group_sums(dy, rows));
    const at::Tensor dx = pass.needs_input[0]
                              ? grouped_matmul(dy, weight.value(), rows, dy.scalar_type())
                              : at::Tensor();
    contribute_weight_gradient(weight, dy, pass.saved[0], rows);
    return {dx};
  });
}

at::Tensor activated_grouped_linear(const WeightedActivation& input, Parameter& weight,
                                    const GroupRows& rows) {
  Recording recording(
      {.name = "ActivatedGroupedLinearBackward", .trains_parameters = weight.is_trained()},
      {input.x, input.weights});
  const at::Tensor x = input.x.contiguous();
  recording.save({x, input.weights});
  const at::Tensor y = grouped_matmul(bias_activation(x, {}, input.form, input.weights),
                                      weight.gemm_weight(), rows, x.scalar_type());
  return recording.finish(y, {}, [&weight, form = input.form, rows](BackwardPass& pass) -> Tensors {
    const at::Tensor dy = pass.gradients[0].contiguous();
    const at::Tensor dactivated = grouped_matmul(dy, weight.value(), rows, dy.scalar_type());
    const BiasActivationGradients gradients = bias_activation_backward(
        dactivated, pass.saved[0], {}, form, /*with_result=*/true, pass.saved[1]);
    contribute_weight_gradient(weight, dy, gradients.y, rows);
    return {gradients.dx, gradients.dweights};
  });
}

at::Tensor add_group_bias(const at::Tensor& input, const at::Tensor& weights, Parameter& bias,
                          const GroupRows& rows) {
  Recording recording({.name = "AddGroupBiasBackward", .trains_parameters = bias.is_trained()},
                      {input, weights});
  const at::Tensor sum = input.clone();
  for_each_group(rows, [&](std::int64_t g, std::int64_t first, std::int64_t count) {
    at::Tensor part = sum.narrow(0, first, count);
    const at::Tensor b = bias.value()[g];
    if (weights.defined()) {
      const at::Tensor w = weights.narrow(0, first, count).unsqueeze(1);
      part.add_((w * b.to(w.scalar_type())).to(part.scalar_type()));
    } else {
      part.add_(b);
    }
  });
  return recording.finish(sum, {weights}, [&bias, rows](BackwardPass& pass) -> Tensors {
    const at::Tensor dy = pass.gradients[0], &w = pass.saved[0];
    if (!w.defined()) {
      bias.contribute(group_sums(dy, rows));
      return {dy, {}};
    }
    const at::Tensor wide = dy.to(w.scalar_type());
    bias.contribute(group_sums(wide * w.unsqueeze(1), rows));
    at::Tensor dweights = at::empty({dy.size(0)}, w.options());
    for_each_group(rows, [&](std::int64_t g, std::int64_t first, std::int64_t count) {
      const at::Tensor part = wide.narrow(0, first, count);
      dweights.narrow(0, first, count)
          .copy_((part * bias.value()[g].to(part.scalar_type())).sum(1));
    });
    return {dy, dweights};
  });
}

}  // namespace megatron
