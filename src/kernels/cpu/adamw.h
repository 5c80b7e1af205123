// AdamW over raw memory, in any storage (AdamwRule).
#pragma once

#include "kernels/optimizer_operations.h"

namespace megatron::kernels {

/// The kernels of one instruction set.
struct AdamwKernels {
  void (*update)(const UpdateChunk& chunk, const UpdateTypes& types, const AdamwRule& rule,
                 const StepScalars& scalars);
};

const AdamwKernels& adamw_kernels();

}  // namespace megatron::kernels
