#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/optimizer_update_impl.h"

namespace megatron::kernels::avx2 {

UpdateKernel update_kernel() { return update; }

}  // namespace megatron::kernels::avx2
