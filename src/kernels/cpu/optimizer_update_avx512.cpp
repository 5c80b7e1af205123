#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/optimizer_update_impl.h"

namespace megatron::kernels::avx512 {

UpdateKernel update_kernel() { return update; }

}  // namespace megatron::kernels::avx512
