// Reads tries in the layout of Darts-clone (Yata), which SentencePiece stores in its models.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::sentencepiece {

/// Immutable and thread-safe. Damaged units end a search; they are never read out of bounds.
class DoubleArray {
 public:
  DoubleArray() = default;
  explicit DoubleArray(std::vector<std::uint32_t> units) : units_(std::move(units)) {}

  /// Returns whether a key begins with `text`.
  bool is_key_prefix(std::string_view text) const {
    if (units_.empty()) return false;
    std::uint32_t position = offset(units_[0]);
    for (const char c : text) {
      position ^= static_cast<unsigned char>(c);
      if (position >= units_.size() ||
          (units_[position] & (1u << 31 | 0xFF)) != static_cast<unsigned char>(c))
        return false;
      position ^= offset(units_[position]);
    }
    return true;
  }

  /// Calls found(length, value) for every key that `text` begins with, the shortest first.
  template <class Found>
  void for_each_prefix(std::string_view text, Found found) const {
    if (units_.empty()) return;
    std::uint32_t position = offset(units_[0]);
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      position ^= byte;
      if (position >= units_.size()) return;
      const std::uint32_t unit = units_[position];
      if ((unit & (1u << 31 | 0xFF)) != byte) return;
      position ^= offset(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (position >= units_.size()) return;
      found(i + 1, static_cast<std::size_t>(units_[position] & ~(1u << 31)));
    }
  }

 private:
  static std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }
  std::vector<std::uint32_t> units_;
};

/// The rules of a precompiled charsmap: the longest key that a text begins with is replaced.
class CharacterMap {
 public:
  CharacterMap() = default;
  /// Throws a UserError when the bytes are malformed. `source` names file and field.
  CharacterMap(std::string_view blob, const std::string& source);

  bool empty() const { return normalized_.empty(); }

  struct Match {
    std::size_t length = 0;  ///< of the key; 0 when no key matches
    std::string_view replacement;
  };
  /// Returns whether a key begins with `text`.
  bool is_key_prefix(std::string_view text) const { return trie_.is_key_prefix(text); }
  /// Returns the longest key that `text` begins with.
  Match longest(std::string_view text) const;
  /// Returns the shortest key that `text` begins with.
  Match shortest(std::string_view text) const;

 private:
  std::string_view replacement_at(std::size_t offset) const;
  DoubleArray trie_;
  std::string normalized_;  ///< replacements, each ended by a NUL
};

}  // namespace megatron::sentencepiece
