// The KV cache of generation. Its contents are opaque to everyone but the layer that fills them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace megatron {

/// What one layer remembers between generation steps.
class LayerCache {
 public:
  virtual ~LayerCache() = default;
};

/// Keys and values of all tokens so far: [capacity, b, groups, head_dim], growing along the first
/// dimension.
class LayerKvCache : public LayerCache {
 public:
  /// Writes `key` and `value` [s, b, g, d] at position `start`, drops later positions, and returns
  /// views of all keys and values [start + s, b, g, d].
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& key, const at::Tensor& value,
                                           std::int64_t start);

 private:
  at::Tensor key_, value_;
};

/// One cache per layer of a stage, in order. Each layer creates its own cache on first use.
struct KvCache {
  std::vector<std::unique_ptr<LayerCache>> layers;
};

}  // namespace megatron
