#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/conversions.h"

#include "kernels/cpu/conversions_impl.h"
#include "kernels/cpu/cpu_features.h"

namespace megatron::kernels {
namespace avx2 {
Conversions conversions();
}

const Conversions& conversions() {
  static const Conversions chosen =
      cpu_has_avx2() ? avx2::conversions() : portable::conversions_table();
  return chosen;
}

}  // namespace megatron::kernels
