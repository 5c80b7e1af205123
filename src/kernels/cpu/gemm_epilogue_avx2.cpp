#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/gemm_epilogue_impl.h"

namespace megatron::kernels::avx2 {

void gemm_epilogue(const GemmEpilogue& rows) { finish(rows); }

}  // namespace megatron::kernels::avx2
