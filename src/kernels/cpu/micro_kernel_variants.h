// The GEMM micro-kernel of each instruction set: what gemm_micro_kernel() chooses from, and tests
// compare. To be called only where the CPU has it.
#pragma once

#include "kernels/cpu/micro_kernel.h"

namespace megatron::kernels {
namespace avx2 {
MicroKernel f32_micro_kernel();
}
namespace avx512 {
MicroKernel f32_micro_kernel();
}
namespace avx512bf16 {
MicroKernel bf16_micro_kernel();
}
namespace amx {
/// Whether this process may use the tiles, and they give the right numbers.
bool is_usable();
MicroKernel bf16_micro_kernel();
}  // namespace amx
}  // namespace megatron::kernels
