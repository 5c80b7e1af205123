#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/draws_impl.h"

namespace megatron::kernels::avx2 {

Draws draws_table() { return {&normals}; }

}  // namespace megatron::kernels::avx2
