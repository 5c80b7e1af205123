// The update rules' table for this processor; optimizer_kernels.h has them for callers.
#pragma once

#include "kernels/optimizer_operations.h"

namespace megatron::kernels {

using UpdateKernel = void (*)(const UpdateChunk& chunk, const UpdateTypes& types, const StepRules& rules, const StepScalars& scalars);

UpdateKernel update_kernel();

}  // namespace megatron::kernels
