#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/conversions_impl.h"

namespace megatron::kernels::avx2 {

Conversions conversions() { return conversions_table(); }

}  // namespace megatron::kernels::avx2
