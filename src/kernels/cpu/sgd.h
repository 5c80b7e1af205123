// SGD with momentum over raw memory, in any storage (SgdRule).
#pragma once

#include "kernels/optimizer_operations.h"

namespace megatron::kernels {

/// The kernels of one instruction set.
struct SgdKernels {
  void (*update)(const UpdateChunk& chunk, const UpdateTypes& types, const SgdRule& rule,
                 const StepScalars& scalars);
};

const SgdKernels& sgd_kernels();

}  // namespace megatron::kernels
