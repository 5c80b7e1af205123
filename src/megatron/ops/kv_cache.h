// Keys and values of attention layers in generation, in the blocks of SequenceCache. Where our CPU
// kernels compute attention, blocks hold keys and values packed as the kernels read them, in the
// type that the CPU multiplies. Elsewhere they hold rows [positions, b, g, d + dv], which our CUDA
// kernel reads in place (paged_attention.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

#include "megatron/ops/core_attention.h"
#include "megatron/ops/sequence_cache.h"
#include "megatron/ops/sequence_placement.h"

namespace megatron {

/// Appends the keys and values of new tokens [rows, 1, g, d or dv] to the caches of `layer`, which
/// is its path, and computes attention [rows, 1, n·dv] of their queries [rows, 1, n, d] to all
/// tokens of their own sequences. `placement` says which rows belong to which of the `caches`. A
/// cache of unpacked samples has keys [rows, b, g, d]. Without queries it only appends.
///
/// Where the ranks of cp share the rows, each has the keys, values and queries of its own, and
/// appends those of all. Collective over cp. The queries may also be those of rank 0 of a placement
/// that has less than the rows of the keys.
at::Tensor cached_attention(const AttentionInputs& inputs, AttentionOptions options,
                            const SequencePlacement& placement, const Caches& caches,
                            std::string_view layer, const Axis& cp = {});

/// Computes attention [rows, 1, n·d] of queries [rows, 1, n, d], whose sequences `placement` says,
/// to the keys and values of the texts that an encoder has seen (SequenceCache::num_encoded). Those
/// of caches that have none yet are appended first: keys and values [rows, 1, n, d] hold them one
/// text after another, as `texts` says. Without such caches they and `texts` are null.
at::Tensor cached_cross_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                                  const SequencePlacement& placement,
                                  const SequencePlacement* texts, const Caches& caches,
                                  std::string_view layer);

}  // namespace megatron
