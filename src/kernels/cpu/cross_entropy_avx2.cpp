#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/cross_entropy_impl.h"

namespace megatron::kernels::avx2 {

CrossEntropyKernels cross_entropy() { return cross_entropy_table(); }

}  // namespace megatron::kernels::avx2
