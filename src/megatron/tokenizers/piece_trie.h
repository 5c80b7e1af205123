// A compact trie that finds every known piece a text begins with.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/huge_pages.h"
#include "megatron/tokenizers/hash_bytes.h"

namespace megatron {

/// Immutable and thread-safe once it is finished. Its texts are of bytes (`Letter` is char) or of
/// numbers (char32_t). Children are kept in blocks of one double array (Aoe, 1989), so that a step
/// costs one lookup. The letters that only one piece has are kept apart as its tail: most pieces
/// end in some, and they are compared at once.
template <class Letter>
class Trie {
 public:
  using Text = std::basic_string_view<Letter>;

  /// Adds a non-empty piece, whose text must stay in memory up to finish(); a later one with the
  /// same text replaces the id.
  void add(Text piece, std::int32_t id) { pieces_.emplace_back(piece, id); }
  /// Makes room for so many pieces.
  void reserve(std::size_t count) { pieces_.reserve(count); }
  /// Builds the trie. Call it once, before any search. Letters of pieces and of texts are less than
  /// `num_letters`.
  void finish(std::size_t num_letters);

  /// Calls found(length, id) for every piece that `text` begins with, the shortest first.
  template <class Found>
  void for_each_prefix(Text text, Found found) const {
    if (units_.empty()) return;
    std::uint32_t base = root_base_;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const Unit& unit = units_[base + number(text[i])];
      if (unit.parent_base != base) return;  // bases are of one node each
      if (unit.id >= 0) found(i + 1, unit.id);
      if (unit.next == 0) return;
      if (unit.has_tail) {
        const Tail tail = tail_at(unit.next);
        const char* const bytes = tails_.data() + unit.next + sizeof(Tail);
        const char* const here = reinterpret_cast<const char*>(&text[i] + 1);
        if (tail.size <= text.size() - i - 1 && same_bytes(here, bytes, tail.size * sizeof(Letter)))
          found(i + 1 + tail.size, tail.id);
        return;
      }
      base = unit.next;
    }
  }

 private:
  class Builder;
  struct Unit {
    std::uint32_t parent_base = ~0u;
    std::uint32_t next = 0;  ///< base of the children, or place of the tail; 0: none
    std::int32_t id = -1;
    bool has_tail = false;
  };
  /// Stands before the letters of a tail.
  struct Tail {
    std::int32_t id;
    std::uint32_t size;  ///< in letters
  };
  static std::uint32_t number(Letter letter) {
    if constexpr (sizeof(Letter) == 1) return static_cast<unsigned char>(letter);
    return static_cast<std::uint32_t>(letter);
  }
  struct Piece {
    static constexpr std::size_t kFirst = sizeof(std::uint64_t) / sizeof(Letter);

    Piece(Text text, std::int32_t id) : text(text), id(id) {
      std::memcpy(first.data(), text.data(), std::min(kFirst, text.size()) * sizeof(Letter));
    }
    Letter letter(std::size_t i) const { return i < kFirst ? first[i] : text[i]; }

    Text text;
    std::array<Letter, kFirst> first{};  ///< saves waiting for the text
    std::int32_t id;
  };
  Tail tail_at(std::uint32_t place) const {
    Tail tail;
    std::memcpy(&tail, tails_.data() + place, sizeof tail);
    return tail;
  }

  HugePageVector<Piece> pieces_;
  HugePageVector<Unit> units_;
  HugePageVector<char> tails_;
  std::uint32_t root_base_ = 0;
};

/// The trie of texts as bytes.
class PieceTrie : public Trie<char> {
 public:
  void finish() { Trie<char>::finish(256); }
};

}  // namespace megatron
