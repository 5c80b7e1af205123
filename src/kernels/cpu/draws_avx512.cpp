#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/draws_impl.h"

namespace megatron::kernels::avx512 {

Draws draws_table() { return {&normals}; }

}  // namespace megatron::kernels::avx512
