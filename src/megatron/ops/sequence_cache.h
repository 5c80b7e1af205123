// What a model remembers between the passes of generation. A cache belongs to one sequence, so that
// any sequences can share a pass; its contents are opaque to all but the layer that fills them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
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

  /// Returns the cache of a layer by its path in the model, which its first call creates.
  /// InternalError when the layer created a cache of another kind.
  template <class Cache>
  Cache& of_layer(std::string_view layer) {
    auto found = layers_.find(layer);
    if (found == layers_.end()) found = layers_.emplace(layer, std::make_unique<Cache>()).first;
    auto* cache = dynamic_cast<Cache*>(found->second.get());
    MEGATRON_CHECK(cache != nullptr, "the cache of ", layer, " is of another kind");
    return *cache;
  }

 private:
  std::map<std::string, std::unique_ptr<LayerCache>, std::less<>> layers_;
};

/// The caches of the sequences of a microbatch, in their order.
using Caches = std::vector<SequenceCache*>;

}  // namespace megatron
