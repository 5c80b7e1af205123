#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/cross_entropy.h"

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/cross_entropy_impl.h"

namespace megatron::kernels {
namespace avx2 {
CrossEntropyKernels cross_entropy();
}
namespace avx512 {
CrossEntropyKernels cross_entropy();
}

const CrossEntropyKernels& cross_entropy_kernels() {
  static const CrossEntropyKernels chosen = cpu_has_avx512() ? avx512::cross_entropy()
                                            : cpu_has_avx2() ? avx2::cross_entropy()
                                                             : portable::cross_entropy_table();
  return chosen;
}

}  // namespace megatron::kernels
