#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/embedding_impl.h"

namespace megatron::kernels::avx512 {

EmbeddingKernels embedding() { return embedding_table(); }

}  // namespace megatron::kernels::avx512
