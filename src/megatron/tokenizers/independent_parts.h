// Divides long words for byte-pair encoding where no token can reach across, so that their parts
// are encoded one by one and remembered. Words of scripts without spaces are whole sentences.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/utf8.h"

namespace megatron {

/// A filter over the tokens of a vocabulary. Merges make tokens only, and one that joined the parts
/// of a text would stand in the text across their boundary. So where no token can stand, the parts
/// are merged as if they were alone. Immutable and thread-safe once it is filled.
class IndependentParts {
 public:
  /// The boundaries of characters where parts may end. Those beside characters beyond ASCII alone
  /// suit words of letters: in English, nearly all others can be crossed.
  enum class Boundaries { all, beyond_ascii };
  explicit IndependentParts(Boundaries boundaries) : boundaries_(boundaries) {}

  /// Notes where `token` reaches across boundaries of characters.
  void add(std::string_view token);

  /// Returns the end of the part of `word` that begins at `begin`.
  std::size_t part_end(std::string_view word, std::size_t begin) const {
    std::size_t at = begin + 1;
    while (at < word.size() && (!is_boundary(word, at) || may_be_crossed(word, at))) ++at;
    return at;
  }

 private:
  /// The bytes beside a boundary that are looked at: most tokens with more of them are alike.
  static constexpr std::size_t kContext = 3;
  static constexpr int kLogBits = 20;

  /// Returns whether parts may end at `at`, which is inside `text`.
  bool is_boundary(std::string_view text, std::size_t at) const {
    const auto before = static_cast<unsigned char>(text[at - 1]),
               after = static_cast<unsigned char>(text[at]);
    return !is_continuation_byte(text[at]) &&
           (before >= 0x80 || after >= 0x80 || boundaries_ == Boundaries::all);
  }
  static std::size_t pair_at(std::string_view text, std::size_t at) {
    return static_cast<std::size_t>(static_cast<unsigned char>(text[at - 1])) << 8 |
           static_cast<unsigned char>(text[at]);
  }
  /// Returns the bit of tokens with these bytes around a boundary. Fewer than kContext bytes on a
  /// side mean that the token begins or ends there.
  static std::size_t bit_of(std::string_view text, std::size_t at, std::size_t before,
                            std::size_t after) {
    std::uint64_t key = before << 4 | after;
    for (std::size_t i = at - before; i < at + after; ++i)
      key = key << 8 | static_cast<unsigned char>(text[i]);
    return static_cast<std::size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15u >> (64 - kLogBits));
  }
  bool has(std::size_t bit) const { return (bits_[bit >> 6] >> (bit & 63) & 1) != 0; }
  bool may_be_crossed(std::string_view text, std::size_t at) const;

  Boundaries boundaries_;
  std::vector<std::uint64_t> bits_ = std::vector<std::uint64_t>((std::size_t{1} << kLogBits) / 64);
  /// The two bytes at every boundary of a token.
  std::array<std::uint64_t, 65536 / 64> neighbors_{};
  /// The two bytes at a boundary of tokens with fewer than kContext bytes on a side.
  std::array<std::uint64_t, 65536 / 64> pairs_{};
};

}  // namespace megatron
