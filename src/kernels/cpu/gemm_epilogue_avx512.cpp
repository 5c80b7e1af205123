#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/gemm_epilogue_impl.h"

namespace megatron::kernels::avx512 {

void gemm_epilogue(const GemmEpilogue& rows) { finish(rows); }

}  // namespace megatron::kernels::avx512
