#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/norm_kernels_impl.h"
