// linear() for stacked weights: each group of rows has a weight of its own. These are the only
// GEMMs with the weights of experts: forward, input gradients and weight gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "megatron/ops/bias_activation.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// The number of rows of each group; a group without rows gets a gradient of zero.
using GroupRows = std::vector<std::int64_t>;

/// Returns y_g = x_g·W_gᵀ + b_g for x [rows, in] sorted by group, W [groups, out, in] and b
/// [groups, out] or null. Backward accumulates in the main gradients, as linear() does.
at::Tensor grouped_linear(const at::Tensor& x, Parameter& weight, Parameter* bias,
                          const GroupRows& rows);

/// The activation w·f(x) of rows, with w [rows] in compute_type(), or 1 when undefined.
struct WeightedActivation {
  at::Tensor x, weights;
  ActivationForm form;
};

/// Returns (w·f(x_g))·W_gᵀ. Only x and w are saved; backward recomputes the activation.
at::Tensor activated_grouped_linear(const WeightedActivation& input, Parameter& weight,
                                    const GroupRows& rows);

/// Returns y_g + w·b_g, where w [rows] is 1 when undefined.
at::Tensor add_group_bias(const at::Tensor& y, const at::Tensor& weights, Parameter& bias,
                          const GroupRows& rows);

}  // namespace megatron
