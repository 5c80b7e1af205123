#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/norm_kernels_impl.h"

namespace megatron::kernels {
namespace avx2 {
NormKernels norm_table();
}
namespace avx512 {
NormKernels norm_table();
}

const NormKernels& norm_kernels() {
  static const NormKernels chosen = cpu_has_avx512() ? avx512::norm_table()
                                    : cpu_has_avx2() ? avx2::norm_table()
                                                     : portable::norm_table();
  return chosen;
}

}  // namespace megatron::kernels
