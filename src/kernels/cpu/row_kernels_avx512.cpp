#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/row_kernels_impl.h"
