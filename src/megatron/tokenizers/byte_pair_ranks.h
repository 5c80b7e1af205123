// Byte-pair encoding as tiktoken defines it: a vocabulary of byte strings, whose ranks order the
// merges. Of all adjacent pairs whose bytes together are a token, the one of lowest rank is merged
// first, the leftmost among equals.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/huge_pages.h"

namespace megatron {

/// Immutable and thread-safe once it is filled.
class BytePairRanks {
 public:
  /// Prepares for `count` tokens of `bytes` bytes in all.
  void reserve(std::size_t count, std::size_t bytes);
  /// Fetches the memory that add() of `token` will need, if reserve() made room.
  void prefetch(std::string_view token) const;
  /// Adds a token of the next rank. Ids must ascend. Returns false when the token exists already.
  bool add(std::string_view token, std::int32_t id);

  /// Returns the id of `token`; −1 when it is absent.
  std::int32_t find(std::string_view token) const;
  /// Returns the token of `id`; empty when there is none.
  std::string_view token(std::int32_t id) const;
  std::size_t size() const { return ids_.size(); }
  /// Returns the largest id + 1.
  std::int32_t id_limit() const { return ids_.empty() ? 0 : ids_.back() + 1; }
  /// Returns the first byte that is not a token; −1 when all are. encode() needs all.
  int missing_byte() const;

  /// Appends the ids of the parts of `word`, which is not empty. A word that is a token is that
  /// token, even if no merges make it.
  void encode(std::string_view word, std::vector<std::int32_t>& ids) const;
  /// Appends what merges make of `word`, which is not empty.
  void merge(std::string_view word, std::vector<std::int32_t>& ids) const;

 private:
  static constexpr std::uint32_t kNoRank = ~0u;
  struct Slot {
    std::uint32_t hash = 0;
    std::uint32_t rank = kNoRank;
  };
  std::uint32_t rank_of(std::string_view bytes) const;
  std::uint32_t rank_of_pair(const char* bytes) const {
    return ranks_of_pairs_[static_cast<std::size_t>(static_cast<unsigned char>(bytes[0])) << 8 |
                           static_cast<unsigned char>(bytes[1])];
  }
  std::string_view token_of_rank(std::size_t rank) const {
    return std::string_view(arena_).substr(offsets_[rank], offsets_[rank + 1] - offsets_[rank]);
  }
  void merge_short(std::string_view word, std::vector<std::int32_t>& ids) const;
  void merge_long(std::string_view word, std::vector<std::int32_t>& ids) const;
  void grow();

  std::string arena_;
  HugePageVector<std::uint32_t> offsets_ = {0};
  HugePageVector<std::int32_t> ids_;  ///< by rank
  HugePageVector<Slot> slots_;
  std::vector<std::uint32_t> ranks_of_pairs_ =
      std::vector<std::uint32_t>(65536, kNoRank);  ///< of two bytes
  std::size_t longest_ = 0;
};

}  // namespace megatron
