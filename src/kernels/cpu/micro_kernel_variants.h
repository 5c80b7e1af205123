// The GEMM micro-kernels of each instruction set, which gemm_micro_kernel() chooses from and tests
// compare. Call one only where its instruction set is_usable() (dispatch.h).
#pragma once

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/micro_kernel.h"

namespace megatron::kernels {

MEGATRON_FOR_EACH_ISA(MEGATRON_DECLARE_VARIANT, MicroKernel, f32_micro_kernel, portable,
                      MEGATRON_X86_ISAS(avx2, avx512))
MEGATRON_FOR_EACH_ISA(MEGATRON_DECLARE_VARIANT, MicroKernel, bf16_micro_kernel, portable,
                      MEGATRON_X86_ISAS(avx512bf16, amx))

}  // namespace megatron::kernels
