#define MEGATRON_KERNEL_ISA portable
#include "kernels/cpu/embedding.h"

#include "kernels/cpu/cpu_features.h"
#include "kernels/cpu/embedding_impl.h"

namespace megatron::kernels {
namespace avx2 {
EmbeddingKernels embedding();
}
namespace avx512 {
EmbeddingKernels embedding();
}

const EmbeddingKernels& embedding_kernels() {
  static const EmbeddingKernels chosen = cpu_has_avx512() ? avx512::embedding()
                                         : cpu_has_avx2() ? avx2::embedding()
                                                          : portable::embedding_table();
  return chosen;
}

}  // namespace megatron::kernels
