// The plain loops, and the choice among instruction sets.
#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/panel_product.h"

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/panel_pack_impl.h"

namespace megatron::kernels {
namespace portable {
namespace {

/// Products are rounded before they are added: processors without AVX2 have no fused multiply-add.
void multiply(const PanelProductArguments& p) {
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

PanelProduct f32_product() { return {Type::f32, pack_to_f32, copy_lines_to_f32, multiply}; }

}  // namespace
}  // namespace portable

namespace avx2 {
PanelProduct f32_product();
}
namespace avx512 {
PanelProduct f32_product();
}
namespace avx512bf16 {
PanelProduct bf16_product();
}

const PanelProduct& panel_product(Type storage) {
  static const PanelProduct f32 = cpu_has_avx512() ? avx512::f32_product() : cpu_has_avx2() ? avx2::f32_product() : portable::f32_product();
  static const PanelProduct bf16 = cpu_has_bf16_products() ? avx512bf16::bf16_product() : f32;
  return storage == Type::bf16 ? bf16 : f32;
}

}  // namespace megatron::kernels
