#include "megatron/tokenizers/piece_trie.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <span>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// A growing set of numbers that answers for 64 of them at once.
class Bits {
 public:
  void resize(std::size_t count) { words_.resize(count / 64 + 2); }
  void set(std::size_t i) { words_[i / 64] |= std::uint64_t{1} << i % 64; }
  /// Returns whether i, i + 1, … are in the set, the first in the lowest bit.
  std::uint64_t from(std::size_t i) const {
    const std::uint64_t low = words_[i / 64] >> i % 64;
    return i % 64 == 0 ? low : low | words_[i / 64 + 1] << (64 - i % 64);
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace

/// Places the nodes depth first, so that those of one branch are near each other. It sorts the
/// pieces by one byte at each node.
class PieceTrie::Builder {
 public:
  explicit Builder(PieceTrie& trie) : trie_(trie) {
    grow(1024);
    trie_.tails_.push_back('\0');  // no tail begins at 0
  }

  void run() {
    trie_.root_base_ = add_children({trie_.pieces_, 0});
    while (!pending_.empty()) {  // a piece may be longer than a recursion can be deep
      const Pending next = pending_.back();
      pending_.pop_back();
      const std::uint32_t base = add_children(next.range);
      trie_.units_[next.unit].next = base;
    }
  }

 private:
  struct Range {
    std::span<Piece> pieces;  ///< all longer than `depth`, with the same bytes before it
    std::size_t depth;
  };
  /// A node whose children are not placed yet.
  struct Pending {
    Range range;
    std::uint32_t unit;
  };

  void grow(std::size_t num_units) {
    if (num_units <= trie_.units_.size()) return;
    MEGATRON_CHECK(num_units <= std::numeric_limits<std::uint32_t>::max() / 2, "too many pieces");
    trie_.units_.resize(std::bit_ceil(num_units));
    taken_.resize(trie_.units_.size());
    used_bases_.resize(trie_.units_.size());
  }

  /// Returns a base at which the units of all labels are free.
  std::uint32_t place(std::span<const unsigned char> labels) {
    std::size_t base = search_from_, tries = 0;
    for (;; base += 64, ++tries) {
      grow(base + 64 + 256);
      std::uint64_t blocked = used_bases_.from(base);
      for (const unsigned char label : labels) blocked |= taken_.from(base + label);
      if (~blocked == 0) continue;
      base += static_cast<std::size_t>(std::countr_one(blocked));
      break;
    }
    search_from_ += tries * 4;  // full regions are left behind, so that building stays linear
    used_bases_.set(base);
    for (const unsigned char label : labels) taken_.set(base + label);
    return static_cast<std::uint32_t>(base);
  }

  /// Sorts by the byte at `depth` and keeps the order of equal ones.
  void sort(const Range& range) {
    constexpr std::size_t kMaxInsertions = 24;
    const auto [pieces, depth] = range;
    if (pieces.size() <= kMaxInsertions) {
      for (std::size_t i = 1; i < pieces.size(); ++i) {
        const Piece piece = pieces[i];
        if (piece.text.size() > sizeof piece.first_bytes) __builtin_prefetch(piece.text.data());
        const unsigned char byte = piece.byte(depth);
        std::size_t at = i;
        for (; at > 0 && pieces[at - 1].byte(depth) > byte; --at) pieces[at] = pieces[at - 1];
        pieces[at] = piece;
      }
      return;
    }
    std::array<std::size_t, 257> begin{};
    for (const Piece& piece : pieces) ++begin[piece.byte(depth) + std::size_t{1}];
    for (std::size_t byte = 0; byte < 256; ++byte) begin[byte + 1] += begin[byte];
    sorted_.assign(pieces.begin(), pieces.end());
    for (const Piece& piece : sorted_) pieces[begin[piece.byte(depth)]++] = piece;
  }

  /// Moves the pieces that are longer than the range's depth to its end and returns them. `id` is
  /// set to that of the last other one.
  static std::span<Piece> longer(const Range& range, std::int32_t& id) {
    std::size_t kept = range.pieces.size();
    std::int32_t last = -1;
    for (std::size_t i = range.pieces.size(); i > 0; --i) {
      const Piece piece = range.pieces[i - 1];
      if (piece.text.size() > range.depth) {
        range.pieces[--kept] = piece;
      } else if (last < 0) {
        last = piece.id;
      }
    }
    id = last;
    return range.pieces.subspan(kept);
  }

  void add_tail(const Piece& piece, std::size_t depth, Unit& unit) {
    std::string& tails = trie_.tails_;
    const std::size_t size = piece.text.size() - depth, place = tails.size();
    MEGATRON_CHECK(place + sizeof(Tail) + size < std::numeric_limits<std::uint32_t>::max(),
                   "the pieces are too long");
    unit.has_tail = true;
    unit.next = static_cast<std::uint32_t>(place);
    const Tail tail{piece.id, static_cast<std::uint32_t>(size)};
    tails.resize(place + sizeof tail + size);
    std::memcpy(&tails[place], &tail, sizeof tail);
    char* const bytes = &tails[place + sizeof tail];
    if (piece.text.size() <= sizeof piece.first_bytes) {
      const std::uint64_t rest = piece.first_bytes >> 8 * depth;
      std::memcpy(bytes, &rest, size);
    } else {
      std::memcpy(bytes, piece.text.data() + depth, size);
    }
  }

  /// Places the children of a node and leaves theirs to `pending_`. Returns their base.
  std::uint32_t add_children(const Range& range) {
    sort(range);
    std::array<unsigned char, 256> labels;
    std::array<std::size_t, 257> begin;
    std::size_t count = 0;
    for (std::size_t i = 0; i < range.pieces.size(); ++i) {
      const unsigned char label = range.pieces[i].byte(range.depth);
      if (count > 0 && labels[count - 1] == label) continue;
      labels[count] = label;
      begin[count++] = i;
    }
    begin[count] = range.pieces.size();
    const std::uint32_t base = place(std::span(labels).first(count));
    for (std::size_t i = count; i > 0; --i) {
      const std::uint32_t place = base + labels[i - 1];
      Unit& unit = trie_.units_[place];
      unit.label = labels[i - 1];
      unit.parent_base = base;
      const Range child{range.pieces.subspan(begin[i - 1], begin[i] - begin[i - 1]),
                        range.depth + 1};
      const std::span<Piece> rest = longer(child, unit.id);
      if (rest.size() == 1) {
        add_tail(rest.front(), child.depth, unit);
      } else if (!rest.empty()) {
        pending_.push_back({{rest, child.depth}, place});
      }
    }
    return base;
  }

  PieceTrie& trie_;
  Bits taken_, used_bases_;
  std::size_t search_from_ = 1;
  std::vector<Pending> pending_;
  std::vector<Piece> sorted_;
};

void PieceTrie::finish() {
  if (pieces_.empty()) return;
  Builder(*this).run();
  pieces_ = {};
}

}  // namespace megatron
