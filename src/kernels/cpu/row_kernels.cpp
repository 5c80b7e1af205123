#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/row_kernels_impl.h"

namespace megatron::kernels {
namespace avx2 {
RowKernels table();
}
namespace avx512 {
RowKernels table();
}

const RowKernels& row_kernels() {
  static const RowKernels chosen = cpu_has_avx512() ? avx512::table()
                                   : cpu_has_avx2() ? avx2::table()
                                                    : portable::table();
  return chosen;
}

}  // namespace megatron::kernels
