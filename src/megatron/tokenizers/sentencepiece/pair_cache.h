// Remembers what pairs of symbols make together, so that their text is searched once per thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "megatron/base/huge_pages.h"
#include "megatron/tokenizers/thread_caches.h"

namespace megatron::sentencepiece {

/// The piece that two symbols make together.
struct PairMerge {
  std::int32_t id;         ///< −1: they make none
  std::uint32_t priority;  ///< lower merges first
};
inline constexpr PairMerge kNoPairMerge{-1, ~0u};

/// A direct-mapped cache for one thread. It belongs to one model at a time.
class PairCache {
 public:
  /// Returns this thread's cache for the model `owner`, which WordCache::new_owner() numbered
  /// (tokenizers/thread_caches.h).
  static PairCache& of_thread(std::uint64_t owner) { return thread_cache<PairCache>(owner); }
  void clear() { std::fill(entries_.begin(), entries_.end(), Entry{}); }

  /// Returns the merge of the symbols `left` and `right` (≥ 0): from the cache, or by search().
  template <class Search>
  PairMerge find(std::int32_t left, std::int32_t right, const Search& search) {
    const std::uint64_t pair =
        std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    Entry& entry = entries_[pair * 0x9E3779B97F4A7C15u >> (64 - kLogEntries)];
    if (entry.pair != pair) entry = {pair, search()};
    return entry.merge;
  }

 private:
  struct Entry {
    std::uint64_t pair = ~0ull;
    PairMerge merge = kNoPairMerge;
  };
  static constexpr int kLogEntries = 16;
  HugePageVector<Entry> entries_ = HugePageVector<Entry>(std::size_t{1} << kLogEntries);
};

}  // namespace megatron::sentencepiece
