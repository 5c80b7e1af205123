#include "megatron/tokenizers/piece_trie.h"

#include <algorithm>
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
/// pieces by one letter at each node.
template <class Letter>
class Trie<Letter>::Builder {
 public:
  Builder(Trie& trie, std::size_t num_letters) : trie_(trie), num_letters_(num_letters) {
    grow(1024);
    // Room for most tails, which are short.
    trie_.tails_.reserve(trie_.pieces_.size() * (sizeof(Tail) + 4 * sizeof(Letter)));
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
    std::span<Piece> pieces;  ///< all longer than `depth`, with the same letters before it
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
  std::uint32_t place(std::span<const std::uint32_t> labels) {
    std::size_t base = search_from_, tries = 0;
    for (;; base += 64, ++tries) {
      grow(base + 64 + num_letters_);
      std::uint64_t blocked = used_bases_.from(base);
      for (const std::uint32_t label : labels) blocked |= taken_.from(base + label);
      if (~blocked == 0) continue;
      base += static_cast<std::size_t>(std::countr_one(blocked));
      break;
    }
    search_from_ += tries * 4;  // full regions are left behind, so that building stays linear
    used_bases_.set(base);
    for (const std::uint32_t label : labels) taken_.set(base + label);
    return static_cast<std::uint32_t>(base);
  }

  static std::uint32_t label(const Piece& piece, std::size_t depth) {
    return number(piece.letter(depth));
  }

  /// Sorts by the letter at `depth` and keeps the order of equal ones.
  void sort(const Range& range) {
    constexpr std::size_t kMaxInsertions = 24;
    const auto [pieces, depth] = range;
    if (pieces.size() <= kMaxInsertions) {
      for (std::size_t i = 1; i < pieces.size(); ++i) {
        const Piece piece = pieces[i];
        if (piece.text.size() > Piece::kFirst) __builtin_prefetch(piece.text.data());
        const std::uint32_t letter = label(piece, depth);
        std::size_t at = i;
        for (; at > 0 && label(pieces[at - 1], depth) > letter; --at) pieces[at] = pieces[at - 1];
        pieces[at] = piece;
      }
      return;
    }
    if (pieces.size() < num_letters_ / 16) {  // fewer than counting takes
      std::ranges::stable_sort(pieces, {}, [&](const Piece& piece) { return label(piece, depth); });
      return;
    }
    begin_of_letter_.assign(num_letters_ + 1, 0);
    for (const Piece& piece : pieces) ++begin_of_letter_[label(piece, depth) + std::size_t{1}];
    for (std::size_t letter = 0; letter < num_letters_; ++letter)
      begin_of_letter_[letter + 1] += begin_of_letter_[letter];
    sorted_.assign(pieces.begin(), pieces.end());
    for (const Piece& piece : sorted_) pieces[begin_of_letter_[label(piece, depth)]++] = piece;
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
    HugePageVector<char>& tails = trie_.tails_;
    const std::size_t size = piece.text.size() - depth, place = tails.size();
    MEGATRON_CHECK(
        place + sizeof(Tail) + size * sizeof(Letter) < std::numeric_limits<std::uint32_t>::max(),
        "the tails of the pieces take more than ", place, " bytes");
    unit.has_tail = true;
    unit.next = static_cast<std::uint32_t>(place);
    const Tail tail{piece.id, static_cast<std::uint32_t>(size)};
    tails.resize(place + sizeof tail + size * sizeof(Letter));
    std::memcpy(&tails[place], &tail, sizeof tail);
    const Letter* const letters =
        piece.text.size() <= Piece::kFirst ? piece.first.data() : piece.text.data();
    std::memcpy(&tails[place + sizeof tail], letters + depth, size * sizeof(Letter));
  }

  /// Places the children of a node and leaves theirs to `pending_`. Returns their base.
  std::uint32_t add_children(const Range& range) {
    sort(range);
    labels_.clear();
    begins_.clear();
    for (std::size_t i = 0; i < range.pieces.size(); ++i) {
      const std::uint32_t letter = label(range.pieces[i], range.depth);
      if (!labels_.empty() && labels_.back() == letter) continue;
      labels_.push_back(letter);
      begins_.push_back(i);
    }
    begins_.push_back(range.pieces.size());
    const std::uint32_t base = place(labels_);
    for (std::size_t i = labels_.size(); i > 0; --i) {
      const std::uint32_t place = base + labels_[i - 1];
      Unit& unit = trie_.units_[place];
      unit.parent_base = base;
      const Range child{range.pieces.subspan(begins_[i - 1], begins_[i] - begins_[i - 1]),
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

  Trie& trie_;
  std::size_t num_letters_;
  Bits taken_, used_bases_;
  std::size_t search_from_ = 1;
  std::vector<Pending> pending_;
  // Workspace of sort().
  HugePageVector<Piece> sorted_;
  std::vector<std::size_t> begin_of_letter_;
  std::vector<std::uint32_t> labels_;  ///< of the children of a node
  std::vector<std::size_t> begins_;    ///< of their pieces
};

template <class Letter>
void Trie<Letter>::finish(std::size_t num_letters) {
  if (pieces_.empty()) return;
  Builder(*this, num_letters).run();
  pieces_ = {};
}

template class Trie<char>;
template class Trie<char32_t>;

}  // namespace megatron
