#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/random_kernels_impl.h"

namespace megatron::kernels::avx2 {

RandomKernels random_table() { return {&normals}; }

}  // namespace megatron::kernels::avx2
