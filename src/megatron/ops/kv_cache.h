// The KV cache of an attention layer in generation.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <utility>

#include "megatron/ops/core_attention.h"
#include "megatron/ops/sequence_cache.h"
#include "megatron/ops/sequence_placement.h"

namespace megatron {

/// Keys and values of all tokens so far: [capacity, b, groups, head_dim], growing along the first
/// dimension. Values that are the first channels of the keys, as latents are, are kept once.
class LayerKvCache : public LayerCache {
 public:
  /// Writes `key` and `value` [s, b, g, d] at position `start`, drops later positions, and returns
  /// views of all keys and values [start + s, b, g, d].
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& key, const at::Tensor& value,
                                           std::int64_t start);
  /// Returns the number of elements that it keeps of a token.
  std::int64_t elements_per_token() const;

 private:
  at::Tensor key_, value_;
};

/// Appends the keys and values of new tokens [rows, 1, g, d or dv] to the caches of `layer`, which
/// is its path, and computes attention of their queries [rows, 1, n, d] over all tokens of their
/// own sequences. `placement` says which rows belong to which of the `caches`.
at::Tensor cached_attention(const AttentionInputs& inputs, AttentionOptions options,
                            const SequencePlacement& placement, const Caches& caches,
                            std::string_view layer);

}  // namespace megatron
