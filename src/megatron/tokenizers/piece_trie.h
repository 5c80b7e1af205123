// A compact trie over bytes that finds every known piece a text begins with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Immutable and thread-safe once it is finished. Children are kept in blocks of one double array,
/// so that a step costs one lookup.
class PieceTrie {
 public:
  /// Adds a non-empty piece; a later one with the same text replaces the id.
  void add(std::string_view piece, std::int32_t id) { pieces_.push_back({std::string(piece), id}); }
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
      if (unit.base == 0) return;
      base = unit.base;
    }
  }

 private:
  struct Unit {
    std::uint32_t parent_base = ~0u;
    std::uint32_t base = 0;  ///< of the children; 0: none
    std::int32_t id = -1;
    std::uint32_t label = 256;
  };
  struct Piece {
    std::string text;
    std::int32_t id;
  };
  struct Range {
    std::size_t first, last;  ///< of the sorted pieces
    std::size_t depth;
  };
  /// A node whose children are not placed yet.
  struct Pending {
    Range range;
    std::uint32_t unit;
  };
  std::uint32_t place(const std::vector<unsigned char>& labels);
  std::uint32_t add_children(const Range& range, std::vector<Pending>& pending);

  std::vector<Piece> pieces_;
  std::vector<Unit> units_;
  std::vector<bool> used_bases_;
  std::uint32_t root_base_ = 0;
  std::size_t search_from_ = 1;
};

}  // namespace megatron
