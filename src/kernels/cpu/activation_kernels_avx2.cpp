#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/activation_kernels_impl.h"
