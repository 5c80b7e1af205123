#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/activation_kernels_impl.h"
