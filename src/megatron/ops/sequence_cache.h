// What a model remembers between the passes of generation. A cache belongs to one sequence, so that
// any sequences can share a pass. Keys and values are in numbered blocks, which sequences can
// share; what other kinds of layers keep is opaque to all but the layer that fills it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/ops/cache_memory.h"

namespace megatron {

/// What one layer remembers of a sequence beside keys and values, such as a state. Its copy must
/// not change with it: a layer replaces tensors rather than writing to them.
class LayerCache {
 public:
  virtual ~LayerCache() = default;
  /// Returns the bytes of its tensors.
  virtual double num_bytes() const { return 0; }
};

/// What this rank's layers remember of a sequence.
class SequenceCache {
 public:
  /// Number of tokens that every layer has seen, and so the position of the next one. A lower
  /// number drops the tokens behind it.
  std::int64_t length = 0;
  /// Number of positions of the text that an encoder has seen, to which the layers of the sequence
  /// attend. Their keys and values are in the same blocks, from the first one on, but in memory of
  /// other layers. 0: there are none yet.
  std::int64_t num_encoded = 0;
  /// Numbers of the blocks of positions 0 …, kBlockPositions each, in memory().
  std::vector<std::int32_t> blocks;

  /// A cache with memory of its own, for 2^17 positions, of which it has as much as it uses.
  SequenceCache();
  /// A cache whose `blocks` are set by who makes it, such as a scheduler, before each pass.
  explicit SequenceCache(std::shared_ptr<CacheMemory> memory) : memory_(std::move(memory)) {}
  SequenceCache(SequenceCache&&) noexcept = default;
  SequenceCache& operator=(SequenceCache&&) noexcept = default;

  /// Returns a cache that has seen the same tokens. Both have the same blocks.
  SequenceCache fork() const;
  CacheMemory& memory() const { return *memory_; }
  /// Replaces what the layers of this cache keep beside blocks by copies of what those of `from`
  /// keep.
  void copy_states(const SequenceCache& from);
  bool has_states() const { return !layers_.empty(); }
  /// Returns the bytes of what they keep.
  double state_bytes() const;

  /// Returns the cache of a layer by its path in the model, which its first call creates.
  /// InternalError when the layer created a cache of another kind.
  template <class Cache>
  Cache& of_layer(std::string_view layer) {
    auto found = layers_.find(layer);
    if (found == layers_.end())
      found = layers_.emplace(layer, Kept{std::make_unique<Cache>(), copy_of<Cache>}).first;
    auto* cache = dynamic_cast<Cache*>(found->second.cache.get());
    MEGATRON_CHECK(cache != nullptr, "the cache of ", layer, " is of another kind");
    return *cache;
  }

 private:
  struct Kept {
    std::unique_ptr<LayerCache> cache;
    std::unique_ptr<LayerCache> (*copy)(const LayerCache&);
  };
  template <class Cache>
  static std::unique_ptr<LayerCache> copy_of(const LayerCache& cache) {
    return std::make_unique<Cache>(static_cast<const Cache&>(cache));
  }

  std::shared_ptr<CacheMemory> memory_;
  std::map<std::string, Kept, std::less<>> layers_;
};

/// The caches of the sequences of a microbatch, in their order.
using Caches = std::vector<SequenceCache*>;

}  // namespace megatron
