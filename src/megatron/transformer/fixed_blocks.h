// Activations in blocks of fixed size: what an element comes to then does not depend on where threads divide the work. ATen computes whole vectors
// and the rest of a share in different ways, and shares end where the number of threads puts them.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/config/transformer_config.h"

namespace megatron {

/// Whether --deterministic-mode is on: ATen's deterministic algorithms are asked for.
bool wants_determinism();

/// f(x), or f(gate)·up of x [..., 2f] = [gate | up]; differentiable. The same bits from any number of threads.
at::Tensor activate_in_fixed_blocks(const at::Tensor& x, Activation kind, bool gated);

}  // namespace megatron
