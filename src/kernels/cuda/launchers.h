// The row and optimizer operations that the .cu files offer to the plugin, on a given stream (a
// cudaStream_t). They do not wait, and return null or the text of a launch error.
#pragma once

#include "kernels/optimizer_operations.h"
#include "kernels/row_operations.h"

namespace megatron::kernels::cuda {

const char* dropout(const DropoutArguments& arguments, void* stream);
const char* rms_norm(const RmsNormArguments& arguments, void* stream);
/// `workspace` holds weight_gradient_workspace_bytes(arguments) bytes.
const char* rms_norm_backward(const RmsNormBackwardArguments& arguments, void* workspace,
                              void* stream);
std::int64_t weight_gradient_workspace_bytes(const RmsNormBackwardArguments& arguments);
const char* rotary(const RotaryArguments& arguments, void* stream);
const char* append_to_cache(const PagedAttentionArguments& arguments, void* stream);
const char* paged_attention(const PagedAttentionArguments& arguments, void* stream);

const char* sum_squares(const StatisticsPlan& plan, void* stream);
const char* count_zeros(const StatisticsPlan& plan, void* stream);
const char* reduce_sums(const StatisticsPlan& plan, void* stream);
const char* finalize(const StatisticsPlan& plan, const StepRules& rules, const StepInputs& inputs,
                     StepScalars* scalars, void* stream);
const char* finalize_zeros(const StatisticsPlan& plan, StepScalars* scalars, void* stream);
const char* adamw(const UpdatePlan& plan, const AdamwRule& rule, void* stream);
const char* sgd(const UpdatePlan& plan, const SgdRule& rule, void* stream);

/// Returns null, or the reason why the current device cannot run these kernels.
const char* device_problem();

}  // namespace megatron::kernels::cuda
