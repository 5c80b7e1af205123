#include "megatron/tokenizers/sentencepiece/pair_cache.h"

#include <algorithm>

namespace megatron::sentencepiece {

PairCache& PairCache::of_thread(std::uint64_t owner) {
  thread_local PairCache cache;
  if (cache.owner_ != owner) {
    std::fill(cache.entries_.begin(), cache.entries_.end(), Entry{});
    cache.owner_ = owner;
  }
  return cache;
}

}  // namespace megatron::sentencepiece
