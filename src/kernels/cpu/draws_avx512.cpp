#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/draws_impl.h"

namespace megatron::kernels::avx512 {

RandomKernels random_table() { return {&normals}; }

}  // namespace megatron::kernels::avx512
