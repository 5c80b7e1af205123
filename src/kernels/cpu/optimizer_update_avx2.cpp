#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/block_squares_impl.h"
#include "kernels/cpu/optimizer_update_impl.h"

namespace megatron::kernels::avx2 {

OptimizerKernels optimizer_kernels() { return {update, block_squares}; }

}  // namespace megatron::kernels::avx2
