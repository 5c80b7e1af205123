// The operations of a step on the CPU: kernels on chunks, shared evenly among the intra-op threads.
#pragma once

#include "kernels/optimizer_operations.h"

namespace megatron {

const kernels::OptimizerOperations& cpu_optimizer_operations();

}  // namespace megatron
