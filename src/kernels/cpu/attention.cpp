#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/attention.h"

#include "kernels/cpu/attention_backward_impl.h"
#include "kernels/cpu/attention_forward_impl.h"
#include "kernels/cpu/cpu_features.h"

namespace megatron::kernels {
namespace avx2 {
AttentionKernels attention_table();
}
namespace avx512 {
AttentionKernels attention_table();
}

const AttentionKernels& attention_kernels() {
  static const AttentionKernels chosen =
      cpu_has_avx512() ? avx512::attention_table()
      : cpu_has_avx2() ? avx2::attention_table()
                       : AttentionKernels{portable::forward_plan, portable::forward,
                                          portable::backward_plan, portable::backward};
  return chosen;
}

}  // namespace megatron::kernels
