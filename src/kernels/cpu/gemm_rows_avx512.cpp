#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/gemm_rows_impl.h"

namespace megatron::kernels::avx512 {

void finish_gemm_rows(const GemmRows& rows) { finish(rows); }

}  // namespace megatron::kernels::avx512
