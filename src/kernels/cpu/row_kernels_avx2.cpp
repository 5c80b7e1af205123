#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/row_kernels_impl.h"
