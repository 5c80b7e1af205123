// Attention to KV caches whose blocks hold rows [positions, b, g, d + dv] (kv_cache.h), by the
// kernels of an accelerator, which read the blocks in place.
#pragma once

#include <span>

#include "kernels/row_operations.h"
#include "megatron/ops/fused_attention.h"

namespace megatron {

/// The counterpart of packed_attention() for blocks of rows, by `operations`. A long beginning of a
/// sequence, which sees only keys of the same rows, is computed by core_attention() instead. Rows
/// that belong to no sequence have any result.
at::Tensor paged_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                           std::span<const PackedSequence> sequences,
                           const kernels::RowOperations& operations);

}  // namespace megatron
