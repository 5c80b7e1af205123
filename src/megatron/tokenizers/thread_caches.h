// Caches of one thread for the tokenizers that it used last.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <utility>

namespace megatron {

/// Returns this thread's cache for the tokenizer `owner`, which WordCache::new_owner() numbered.
/// `Cache` has clear(). A thread has two, because whoever compares two tokenizers uses them in turn
/// for each text; the cache is empty when two others used them last. Whoever holds it must not
/// encode with two other tokenizers meanwhile.
template <class Cache>
Cache& thread_cache(std::uint64_t owner) {
  struct Slot {
    std::uint64_t owner = 0;
    std::unique_ptr<Cache> cache;
  };
  thread_local std::array<Slot, 2> slots;  // the one used last is first
  if (slots[0].owner != owner) std::swap(slots[0], slots[1]);
  Slot& slot = slots[0];
  if (slot.owner != owner) {
    if (slot.cache) slot.cache->clear();
    if (!slot.cache) slot.cache = std::make_unique<Cache>();
    slot.owner = owner;
  }
  return *slot.cache;
}

}  // namespace megatron
