#include "megatron/tokenizers/word_cache.h"

#include <algorithm>
#include <atomic>

#include "megatron/tokenizers/thread_caches.h"

namespace megatron {

WordCache& WordCache::of_thread(std::uint64_t owner) { return thread_cache<WordCache>(owner); }

void WordCache::clear() {
  std::fill(entries_.begin(), entries_.end(), Entry{});
  std::fill(long_entries_.begin(), long_entries_.end(), LongEntry{});
}

std::uint64_t WordCache::new_owner() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace megatron
