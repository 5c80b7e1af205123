// The plain loops, and the choice among instruction sets.
#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/micro_kernel.h"

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/gemm_packing_impl.h"
#include "kernels/cpu/micro_kernel_variants.h"

namespace megatron::kernels {
namespace portable {
namespace {

/// Products are rounded before they are added: processors without AVX2 have no fused multiply-add.
void multiply(const MicroKernelArguments& p) {
  for (std::int64_t r = 0; r < p.rows; ++r) {
    const auto* a = static_cast<const float*>(p.a) + r * p.row_stride;
    const auto* panel = static_cast<const float*>(p.panel);
    float sums[kPanelColumns] = {};
    for (std::int64_t s = 0; s < p.steps; ++s, panel += kPanelColumns) {
      const float x = a[s * p.step_stride];
      for (std::int64_t c = 0; c < kPanelColumns; ++c) sums[c] += x * panel[c];
    }
    float* out = p.out + r * p.out_stride;
    for (std::int64_t c = 0; c < p.columns; ++c) out[c] = p.accumulate ? out[c] + sums[c] : sums[c];
  }
}

MicroKernel f32_micro_kernel() {
  return {.type = Type::f32, .pack = pack_to_f32, .copy = copy_lines_to_f32, .multiply = multiply};
}

}  // namespace
}  // namespace portable

namespace {

MicroKernel fastest_f32() {
  return cpu_has_avx512() ? avx512::f32_micro_kernel()
         : cpu_has_avx2() ? avx2::f32_micro_kernel()
                          : portable::f32_micro_kernel();
}

MicroKernel fastest_bf16() {
  if (cpu_has_amx() && amx::is_usable()) return amx::bf16_micro_kernel();
  return cpu_has_avx512_bf16() ? avx512bf16::bf16_micro_kernel() : fastest_f32();
}

}  // namespace

const MicroKernel& gemm_micro_kernel(Type storage) {
  static const MicroKernel f32 = fastest_f32(), bf16 = fastest_bf16();
  return storage == Type::bf16 ? bf16 : f32;
}

}  // namespace megatron::kernels
