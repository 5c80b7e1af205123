// Autograd functions. Every differentiable op of ours is a forward function, the tensors it saves,
// and a typed backward function. Recomputation and offload hook in here (saved_tensors.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <functional>
#include <vector>

namespace megatron {

using Tensors = std::vector<at::Tensor>;

/// The arguments of a backward function.
struct BackwardPass {
  Tensors saved;                  ///< the tensors of Recorded::saved, in the same order
  Tensors gradients;              ///< gradients of the differentiable outputs
  std::vector<bool> needs_input;  ///< per input: true when its gradient is needed
};

/// The result of a forward function.
struct Recorded {
  Tensors outputs;
  /// Every tensor that backward reads, inputs and outputs included. Undefined tensors are allowed.
  /// The tensors are released as soon as backward has run; a second backward is an error.
  Tensors saved;
  /// Returns one gradient per input, undefined where there is none. The function must capture only
  /// plain values: a captured tensor would bypass the hooks on saved tensors.
  std::function<Tensors(BackwardPass&)> backward;
  std::size_t num_differentiable = 1;  ///< the first outputs are differentiable, the others are not
  /// Set in place of `outputs` when no output is saved: computes them once the tensors are saved. A
  /// recomputation that needs only these tensors then skips it.
  std::function<Tensors()> compute = {};
  /// Computes the last output again from the saved tensors, with the same bits. Set by an op for
  /// which that is cheap.
  std::function<at::Tensor(const Tensors& saved)> recompute_last = {};
};

/// Static properties of a differentiable op.
struct DifferentiableOp {
  const char* name;  ///< name of the backward node in profiles; a string literal
  /// Backward also contributes gradients to Parameters, so it runs even if no input requires a
  /// gradient.
  bool trains_parameters = false;
  /// Backward receives undefined gradients unchanged; otherwise they become zeros.
  bool allows_undefined_gradients = false;
};

/// Runs `forward`, and Recorded::compute, without recording and registers its backward function as
/// the gradient of its outputs with respect to `inputs`. Nothing is saved when no gradient can be
/// requested.
Tensors differentiable(const DifferentiableOp& op, at::TensorList inputs,
                       c10::function_ref<Recorded()> forward);

/// Returns f(inputs) and keeps the inputs only: backward runs `f` again and differentiates it by
/// autograd. For cheap compositions of ATen operators, whose own nodes would bypass the hooks on
/// saved tensors. `f` must capture only plain values.
at::Tensor differentiable_by_autograd(const DifferentiableOp& op, at::TensorList inputs,
                                      const std::function<at::Tensor(const Tensors&)>& f);

/// Returns the gradient of x given `dy`, the gradient of y = f(x), by autograd. x must require a
/// gradient.
at::Tensor gradient_of(const at::Tensor& y, const at::Tensor& x, const at::Tensor& dy);

}  // namespace megatron
