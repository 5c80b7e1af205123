#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/activation_kernels_impl.h"
#include "kernels/cpu/cpu_features.h"

namespace megatron::kernels {
namespace avx2 {
ActivationKernels activation_table();
}
namespace avx512 {
ActivationKernels activation_table();
}

const ActivationKernels& activation_kernels() {
  static const ActivationKernels chosen = cpu_has_avx512() ? avx512::activation_table()
                                          : cpu_has_avx2() ? avx2::activation_table()
                                                           : portable::activation_table();
  return chosen;
}

}  // namespace megatron::kernels
