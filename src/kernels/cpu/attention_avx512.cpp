#define MEGATRON_KERNEL_ISA avx512
#include "kernels/cpu/attention_backward_impl.h"
#include "kernels/cpu/attention_forward_impl.h"

namespace megatron::kernels::avx512 {

AttentionKernels attention_table() { return {forward_plan, forward, backward_plan, backward}; }

}  // namespace megatron::kernels::avx512
