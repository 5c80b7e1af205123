// What a model remembers between the passes of generation. A cache belongs to one sequence, so that
// any sequences can share a pass; its contents are opaque to all but the layer that fills them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {

/// What one layer remembers of a sequence, such as keys and values (kv_cache.h).
class LayerCache {
 public:
  virtual ~LayerCache() = default;
};

/// What this rank's layers remember of a sequence.
class SequenceCache {
 public:
  /// Number of tokens that every layer has seen, and so the position of the next one. A lower
  /// number drops the tokens behind it.
  std::int64_t length = 0;

  /// Returns the cache of a layer, which its first call creates. InternalError when the layer
  /// created a cache of another kind.
  template <class Cache>
  Cache& of_layer(std::int64_t layer) {
    const auto index = static_cast<std::size_t>(layer);
    if (index >= layers_.size()) layers_.resize(index + 1);
    if (!layers_[index]) layers_[index] = std::make_unique<Cache>();
    auto* cache = dynamic_cast<Cache*>(layers_[index].get());
    MEGATRON_CHECK(cache != nullptr, "the cache of layer ", layer, " is of another kind");
    return *cache;
  }

 private:
  std::vector<std::unique_ptr<LayerCache>> layers_;
};

/// The caches of the sequences of a microbatch, in their order.
using Caches = std::vector<SequenceCache*>;

}  // namespace megatron
