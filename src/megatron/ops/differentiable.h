// The one way in which our ops enter autograd: a forward function, the tensors it saves, and a
// typed backward function. Recompute and offload hook in here.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <functional>
#include <vector>

namespace megatron {

using Tensors = std::vector<at::Tensor>;

/// What a backward function works on.
struct BackwardPass {
  Tensors saved;                  ///< Recorded::saved, in its order
  Tensors gradients;              ///< one per differentiable output
  std::vector<bool> needs_input;  ///< per input: whether its gradient is used
};

/// What a forward function returns.
struct Recorded {
  Tensors outputs;
  /// Every tensor that backward reads, inputs and outputs included; undefined ones are allowed.
  /// They are released as soon as backward has run, and a second backward is an error.
  Tensors saved;
  /// Returns one gradient per input, undefined where there is none. Captures plain values only:
  /// a captured tensor would escape the hooks on saved tensors.
  std::function<Tensors(BackwardPass&)> backward;
  std::size_t num_differentiable = 1;  ///< the first outputs; the others carry no gradient
};

struct DifferentiableOp {
  const char* name;  ///< of the backward node in profiles: a literal
  /// Backward hands gradients to Parameters, so it runs although no input requires a gradient.
  bool trains_parameters = false;
  /// Backward receives undefined gradients as they are; otherwise they become zeros.
  bool allows_undefined_gradients = false;
};

/// Runs `forward` without recording, then records its backward function as the gradient of its
/// outputs with respect to `inputs`. Nothing is saved where no gradient can be asked for.
Tensors differentiable(const DifferentiableOp& op, at::TensorList inputs,
                       c10::function_ref<Recorded()> forward);

/// The gradient of x from that of y = f(x), by autograd; x must require a gradient.
at::Tensor gradient_of(const at::Tensor& y, const at::Tensor& x, const at::Tensor& dy);

}  // namespace megatron
