// SentencePiece's BPE: of all adjacent pairs that are a piece, the one of highest score is merged
// first, the leftmost among equals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "megatron/base/huge_pages.h"
#include "megatron/tokenizers/sentencepiece/pieces.h"
#include "megatron/tokenizers/thread_caches.h"

namespace megatron::sentencepiece {

/// The piece that two symbols make together.
struct PairMerge {
  std::int32_t id;         ///< −1: they make none
  std::uint32_t priority;  ///< lower merges first
};
inline constexpr PairMerge kNoPairMerge{-1, ~0u};

/// Remembers what pairs of symbols make together, so that their text is searched once per thread. A
/// direct-mapped cache, which belongs to one model at a time.
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

/// Immutable and thread-safe. The arguments must outlive it.
class BpeModel {
 public:
  BpeModel(const ModelFile& model, const Pieces& pieces, const CharacterTable& characters);
  /// Appends the pieces of `text`, which is normalized.
  void encode(std::string_view text, std::vector<EncodedPiece>& out) const;

 private:
  struct Symbol;
  void find_merges_of_ascii(const ModelFile& model);
  struct Merges;
  Symbol symbol_at(std::string_view text) const;
  PairMerge initial_merge(const Symbol& left, const Symbol& right, Merges& merges) const;
  PairMerge merge_of(const Symbol& left, const Symbol& right, Merges& merges) const;
  std::span<Symbol> merge_short(std::span<Symbol> symbols, Merges& merges) const;
  void merge_long(std::span<Symbol> symbols, Merges& merges) const;
  void append(const Symbol& symbol, const Merges& merges, std::vector<EncodedPiece>& out) const;
  void resegment(std::string_view piece, const Merges& merges,
                 std::vector<EncodedPiece>& out) const;

  const Pieces& pieces_;
  const CharacterTable& characters_;
  std::uint64_t cache_owner_;
  std::vector<std::uint32_t> priority_;     ///< by id; lower merges first, equal for equal scores
  std::vector<PairMerge> merges_of_ascii_;  ///< by pair of direct characters; see symbol_at()
  bool has_unused_ = false;
};

}  // namespace megatron::sentencepiece
