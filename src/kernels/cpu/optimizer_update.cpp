#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/optimizer_update.h"

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/optimizer_update_impl.h"

namespace megatron::kernels {
namespace avx2 {
UpdateKernel update_kernel();
}
namespace avx512 {
UpdateKernel update_kernel();
}

UpdateKernel update_kernel() {
  static const UpdateKernel chosen = cpu_has_avx512() ? avx512::update_kernel() : cpu_has_avx2() ? avx2::update_kernel() : portable::update;
  return chosen;
}

}  // namespace megatron::kernels
