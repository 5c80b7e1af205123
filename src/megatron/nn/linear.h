// The single entry point of every GEMM with a weight: forward, input gradient and weight gradient,
// which it contributes to the parameter. The activation function of an MLP is fused with the bias
// of the GEMM before it, and with the GEMM after it.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/ops/bias_activation.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// How the rows of x reach this rank and the rows of y leave it. No effect on an axis of size 1.
struct LinearExchange {
  enum class Input {
    own,     ///< x is sharded over its features, as the weight is
    copied,  ///< x is equal on every rank; backward all-reduces its gradient
    /// x is this rank's slice of the sequence: forward all-gathers it, backward reduce-scatters its
    /// gradient
    gathered
  };
  enum class Output {
    own,              ///< y is sharded over its features, as the weight is
    reduced,          ///< y is a partial sum: forward all-reduces it
    reduce_scattered  ///< y is a partial sum: forward reduce-scatters it over the sequence
  };
  Input input = Input::own;
  Output output = Output::own;
  TensorParallelOptions options;
  /// A string literal that names the calls in the communication counters.
  const char* what = "linear";
};

/// Returns y = x·Wᵀ + b in the weight's dtype, for x [..., in], W [out, in] and b [out] or null. A
/// bias is added after a sum over the ranks.
///
/// Backward accumulates the weight gradient dyᵀ·x in the main gradient, directly in float32 from
/// 16-bit operands when that is its dtype. Communication of the input gradient overlaps the weight
/// gradient's GEMM.
///
/// Collective over the weight's axis as `exchange` says. The first dimension of x is then the
/// sequence, and only this rank's slice of x is saved for backward.
at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias,
                  const LinearExchange& exchange = {});

/// An activation and the bias that it adds first, or null.
struct BiasActivation {
  ActivationForm form;
  Parameter* bias = nullptr;

  at::Tensor bias_value() const;
};

/// Returns the activation of x + bias; differentiable. Backward contributes the gradient of the
/// bias.
at::Tensor activate(const at::Tensor& x, const BiasActivation& activation);

/// Returns linear() of the activation of x, on the CPU, with the same bits as the two separate
/// operations. Only x is saved: the backward kernel of the activation recomputes its result for the
/// weight gradient. `exchange.input` must be `own`.
at::Tensor activated_linear(const at::Tensor& x, const BiasActivation& activation,
                            Parameter& weight, Parameter* bias,
                            const LinearExchange& exchange = {});

}  // namespace megatron
