#define MEGATRON_KERNEL_ISA avx2
#include "kernels/cpu/embedding_impl.h"

namespace megatron::kernels::avx2 {

EmbeddingKernels embedding() { return embedding_table(); }

}  // namespace megatron::kernels::avx2
