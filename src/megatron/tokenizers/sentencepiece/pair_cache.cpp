#include "megatron/tokenizers/sentencepiece/pair_cache.h"

#include <algorithm>

#include "megatron/tokenizers/thread_caches.h"

namespace megatron::sentencepiece {

PairCache& PairCache::of_thread(std::uint64_t owner) { return thread_cache<PairCache>(owner); }

void PairCache::clear() { std::fill(entries_.begin(), entries_.end(), Entry{}); }

}  // namespace megatron::sentencepiece
