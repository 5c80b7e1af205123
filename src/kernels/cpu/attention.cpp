// The attention kernels, compiled once for each instruction set.
#include "kernels/cpu/attention.h"

#include "kernels/cpu/attention_backward.h"
#include "kernels/cpu/attention_forward.h"
#include "kernels/cpu/dispatch.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

AttentionKernels attention_kernels() { return {forward_plan, forward, backward_plan, backward}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(AttentionKernels, attention_kernels)
