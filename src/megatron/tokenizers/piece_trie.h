// A compact trie over bytes that finds every known piece a text begins with.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/huge_pages.h"
#include "megatron/tokenizers/hash_bytes.h"

namespace megatron {

/// Immutable and thread-safe once it is finished. Children are kept in blocks of one double array
/// (Aoe, 1989), so that a step costs one lookup. The bytes that only one piece has are kept apart
/// as its tail: most pieces end in some, and they are compared at once.
class PieceTrie {
 public:
  /// Adds a non-empty piece, whose text must stay in memory up to finish(); a later one with the
  /// same text replaces the id.
  void add(std::string_view piece, std::int32_t id) { pieces_.emplace_back(piece, id); }
  /// Makes room for so many pieces.
  void reserve(std::size_t count) { pieces_.reserve(count); }
  /// Builds the trie. Call it once, before any search.
  void finish();

  /// Calls found(length, id) for every piece that `text` begins with, the shortest first.
  template <class Found>
  void for_each_prefix(std::string_view text, Found found) const {
    if (units_.empty()) return;
    std::uint32_t base = root_base_;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const Unit& unit = units_[base + byte];
      if (unit.label != byte || unit.parent_base != base) return;
      if (unit.id >= 0) found(i + 1, unit.id);
      if (unit.next == 0) return;
      if (unit.has_tail) {
        const Tail tail = tail_at(unit.next);
        const char* const bytes = tails_.data() + unit.next + sizeof(Tail);
        if (tail.size <= text.size() - i - 1 && same_bytes(&text[i] + 1, bytes, tail.size))
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
    std::uint16_t label = 256;
    bool has_tail = false;
  };
  /// Stands before the bytes of a tail.
  struct Tail {
    std::int32_t id;
    std::uint32_t size;
  };
  struct Piece {
    Piece(std::string_view text, std::int32_t id) : text(text), id(id) {
      for (std::size_t i = 0; i < sizeof first_bytes && i < text.size(); ++i)
        first_bytes |= std::uint64_t{static_cast<unsigned char>(text[i])} << 8 * i;
    }
    unsigned char byte(std::size_t i) const {
      return i < sizeof first_bytes ? static_cast<unsigned char>(first_bytes >> 8 * i)
                                    : static_cast<unsigned char>(text[i]);
    }
    std::string_view text;
    std::uint64_t first_bytes = 0;  ///< saves waiting for the text
    std::int32_t id;
  };
  Tail tail_at(std::uint32_t place) const {
    Tail tail;
    std::memcpy(&tail, tails_.data() + place, sizeof tail);
    return tail;
  }

  HugePageVector<Piece> pieces_;
  HugePageVector<Unit> units_;
  std::string tails_;
  std::uint32_t root_base_ = 0;
};

}  // namespace megatron
