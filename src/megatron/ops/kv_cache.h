// What a layer remembers between steps of generation; opaque to everyone but the layer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace megatron {

class LayerCache {
 public:
  virtual ~LayerCache() = default;
};

/// Keys and values seen so far: [capacity, b, groups, head_dim], growing along the first dimension.
class LayerKvCache : public LayerCache {
 public:
  /// Appends k and v [s, b, g, d] at position `start` (later positions are forgotten) and returns
  /// all [start + s, b, g, d].
  std::pair<at::Tensor, at::Tensor> append(const at::Tensor& key, const at::Tensor& value,
                                           std::int64_t start);

 private:
  at::Tensor key_, value_;
};

/// One state per layer of a stage, in order; layers are filled by the layers on first use.
struct KvCache {
  std::vector<std::unique_ptr<LayerCache>> layers;
};

}  // namespace megatron
