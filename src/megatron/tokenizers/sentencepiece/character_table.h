// What a model's pieces say about single characters. Most Chinese characters are in no piece but
// their own, so that a look into this table encodes them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace megatron::sentencepiece {

class Pieces;
struct ModelFile;

/// Immutable and thread-safe.
class CharacterTable {
 public:
  CharacterTable(const ModelFile& model, const Pieces& pieces);

  /// Returns whether no piece that text is segmented into has `c` beside other characters. Such a
  /// character is merged with no other. Characters beyond the table count as merged.
  bool is_alone(char32_t c) const { return c < kSize && (entries_[c] & kMerged) == 0; }
  /// Returns the id of the piece that is `c` alone; −1 when there is none. `c` is below kSize.
  std::int32_t id(char32_t c) const { return static_cast<std::int32_t>(entries_[c] >> 1) - 1; }

  static constexpr char32_t kSize = 0x10000;

 private:
  static constexpr std::uint32_t kMerged = 1;
  std::vector<std::uint32_t> entries_;  ///< (id + 1) * 2, and kMerged
};

}  // namespace megatron::sentencepiece
