// Activation functions and their gated forms, with the bias of the GEMM in front of them.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/config/transformer_config.h"

namespace megatron {

/// f(x), or with `gated` f(gate)·up for x [..., 2f] = [gate | up]. gelu is the erf form, gelu_tanh
/// the tanh form, quick_gelu is x·σ(1.702·x).
struct ActivationForm {
  Activation kind;
  bool gated = false;
};

/// Returns the activation of x + bias in the dtype of x. `bias` [columns of x] may be undefined.
/// 16-bit numbers are computed in float32 and rounded once.
at::Tensor bias_activation(const at::Tensor& x, const at::Tensor& bias, const ActivationForm& form);

struct BiasActivationGradients {
  at::Tensor dx;     ///< like x
  at::Tensor dbias;  ///< [columns of x] in compute_type; undefined without a bias
  at::Tensor y;      ///< the result of bias_activation(), if asked for
};
/// Backward of bias_activation(). With `with_result` the same pass recomputes the result, which
/// then need not be kept.
BiasActivationGradients bias_activation_backward(const at::Tensor& dy, const at::Tensor& x,
                                                 const at::Tensor& bias, const ActivationForm& form,
                                                 bool with_result);

}  // namespace megatron
