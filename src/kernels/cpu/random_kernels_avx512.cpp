#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/random_kernels_impl.h"

namespace megatron::kernels::avx512 {

RandomKernels random_table() { return {&normals}; }

}  // namespace megatron::kernels::avx512
