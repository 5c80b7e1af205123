#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/random_kernels.h"

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/random_kernels_impl.h"

namespace megatron::kernels {
namespace avx2 {
RandomKernels random_table();
}
namespace avx512 {
RandomKernels random_table();
}

const RandomKernels& random_kernels() {
  static const RandomKernels chosen = cpu_has_avx512() ? avx512::random_table()
                                      : cpu_has_avx2() ? avx2::random_table()
                                                       : RandomKernels{&portable::normals};
  return chosen;
}

}  // namespace megatron::kernels
