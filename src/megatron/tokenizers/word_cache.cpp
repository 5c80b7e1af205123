#include "megatron/tokenizers/word_cache.h"

#include <algorithm>
#include <atomic>

namespace megatron {

WordCache& WordCache::of_thread(std::uint64_t owner) {
  thread_local WordCache cache;
  if (cache.owner_ != owner) {
    std::fill(cache.entries_.begin(), cache.entries_.end(), Entry{});
    std::fill(cache.long_entries_.begin(), cache.long_entries_.end(), LongEntry{});
    cache.owner_ = owner;
  }
  return cache;
}

std::uint64_t WordCache::new_owner() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace megatron
