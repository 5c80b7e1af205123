// Activation functions and their gated forms, fused with the bias of the preceding GEMM.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "megatron/config/transformer_enums.h"

namespace megatron {

struct TransformerConfig;

/// Describes f(x), or f(gate)·(up + linear_offset) when `gated`, for x [..., 2f] = [gate | up].
/// `gelu` is the erf form, `gelu_tanh` the tanh form, and `quick_gelu` is x·σ(1.702·x). A clamp C
/// bounds gate from above by C and up to [−C, C]; gradients pass at the bounds, as in
/// torch.clamp(). Clamp and offset need a gate.
struct ActivationForm {
  Activation kind;
  bool gated = false;
  std::optional<double> clamp = {};
  double linear_offset = 0;
  static auto members(auto& f) { return std::tie(f.kind, f.gated, f.clamp, f.linear_offset); }
};

/// Returns the form of the activation of a model's MLPs and experts.
ActivationForm activation_form(const TransformerConfig& config);

/// Returns the activation of x + bias in the dtype of x. `bias` has one element per column of x, or
/// is undefined. `weights`, in compute_type() and with one element per row, multiply the rows of
/// the result; they may be undefined. 16-bit values are computed in float32 and rounded once. Not
/// differentiable: activate() records the gradient.
at::Tensor bias_activation(const at::Tensor& x, const at::Tensor& bias, const ActivationForm& form,
                           const at::Tensor& weights = {});

/// The result of bias_activation_backward().
struct BiasActivationGradients {
  at::Tensor dx;        ///< like x
  at::Tensor dbias;     ///< [columns of x] in compute_type(); undefined without a bias
  at::Tensor y;         ///< result of bias_activation(), if requested
  at::Tensor dweights;  ///< like the weights; undefined without them
  static auto members(auto& d) { return std::tie(d.dx, d.dbias, d.y, d.dweights); }
};
/// Backward of bias_activation(). With `with_result` the same pass recomputes the forward result,
/// so that it need not be saved.
BiasActivationGradients bias_activation_backward(const at::Tensor& dy, const at::Tensor& x,
                                                 const at::Tensor& bias, const ActivationForm& form,
                                                 bool with_result, const at::Tensor& weights = {});

}  // namespace megatron
