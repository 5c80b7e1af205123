// The innermost product of each instruction set: what panel_product() chooses from, and tests compare. To be called only where the processor has it.
#pragma once

#include "kernels/cpu/panel_product.h"

namespace megatron::kernels {
namespace avx2 {
PanelProduct f32_product();
}
namespace avx512 {
PanelProduct f32_product();
}
namespace avx512bf16 {
PanelProduct bf16_product();
}
namespace amx {
/// Whether this process may use the tiles, and they give the right numbers.
bool is_usable();
PanelProduct bf16_product();
}  // namespace amx
}  // namespace megatron::kernels
