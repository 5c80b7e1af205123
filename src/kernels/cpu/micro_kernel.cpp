// The micro-kernel in plain loops, and the choice among instruction sets.
#include "kernels/cpu/micro_kernel.h"

#include "kernels/cpu/gemm_packing.h"
#include "kernels/cpu/micro_kernel_variants.h"

namespace megatron::kernels {

/// The fastest micro-kernel for operands that are packed as f32.
const MicroKernel& f32_micro_kernel();
/// The fastest micro-kernel for bf16 operands.
const MicroKernel& bf16_micro_kernel();

namespace portable {
namespace {

/// Rounds once where the compiler may assume a fused multiply-add, as on ARM. x86-64 CPUs without
/// AVX2 have none.
inline float multiply_add(float x, float y, float sum) {
#if defined(__FP_FAST_FMAF)
  return __builtin_fmaf(x, y, sum);
#else
  return sum + x * y;
#endif
}

void multiply(const MicroKernelArguments& p) {
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const auto* a = static_cast<const float*>(p.a) + r * p.row_stride;
    const auto* panel = static_cast<const float*>(p.panel);
    float sums[kPanelColumns] = {};
    for (std::int64_t s = 0; s < p.steps; ++s, panel += kPanelColumns) {
      const float x = a[s * p.step_stride];
      for (std::int64_t c = 0; c < kPanelColumns; ++c) sums[c] = multiply_add(x, panel[c], sums[c]);
    }
    float* out = p.out + r * p.out_stride;
    for (std::int64_t c = 0; c < p.columns; ++c) out[c] = p.accumulate ? out[c] + sums[c] : sums[c];
  }
}

}  // namespace

MicroKernel f32_micro_kernel() {
  return {.type = Type::f32, .pack = pack_to_f32, .copy = copy_lines_to_f32, .multiply = multiply};
}

/// Widens the operands as it packs them.
MicroKernel bf16_micro_kernel() { return kernels::f32_micro_kernel(); }

}  // namespace portable

const MicroKernel& gemm_micro_kernel(Type storage) {
  return storage == Type::bf16 ? bf16_micro_kernel() : f32_micro_kernel();
}

}  // namespace megatron::kernels

MEGATRON_DISPATCH_AMONG(MicroKernel, f32_micro_kernel, MEGATRON_X86_ISAS(avx512, avx2))
MEGATRON_DISPATCH_AMONG(MicroKernel, bf16_micro_kernel, MEGATRON_X86_ISAS(amx, avx512bf16))
