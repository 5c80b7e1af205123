#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/optimizer_update.h"

#include "kernels/cpu/block_squares_impl.h"
#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/optimizer_update_impl.h"

namespace megatron::kernels {
namespace avx2 {
OptimizerKernels optimizer_kernels();
}
namespace avx512 {
OptimizerKernels optimizer_kernels();
}

const OptimizerKernels& optimizer_kernels() {
  static const OptimizerKernels chosen =
      cpu_has_avx512() ? avx512::optimizer_kernels()
      : cpu_has_avx2() ? avx2::optimizer_kernels()
                       : OptimizerKernels{portable::update, portable::block_squares};
  return chosen;
}

}  // namespace megatron::kernels
