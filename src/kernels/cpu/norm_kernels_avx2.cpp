#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/norm_kernels_impl.h"
