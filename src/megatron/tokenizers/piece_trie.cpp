#include "megatron/tokenizers/piece_trie.h"

#include <algorithm>

namespace megatron {

/// Returns a base at which the units of all labels are free.
std::uint32_t PieceTrie::place(const std::vector<unsigned char>& labels) {
  const auto is_free = [&](std::size_t base) {
    return !used_bases_[base] &&
           std::all_of(labels.begin(), labels.end(),
                       [&](unsigned char label) { return units_[base + label].label == 256; });
  };
  const auto grow = [&](std::size_t base) {
    if (base + 256 < units_.size()) return;
    units_.resize(std::max(units_.size() * 2, base + 1024));
    used_bases_.resize(units_.size());
  };
  std::size_t base = search_from_, tries = 0;
  for (grow(base); !is_free(base); grow(base)) ++base, ++tries;
  search_from_ += tries / 16;  // full regions are left behind, so that building stays linear
  used_bases_[base] = true;
  return static_cast<std::uint32_t>(base);
}

/// Places the children of a node and leaves theirs to `pending`. Returns their base.
std::uint32_t PieceTrie::add_children(const Range& range, std::vector<Pending>& pending) {
  std::vector<unsigned char> labels;
  std::vector<Range> children;
  for (std::size_t i = range.first; i < range.last; ++i) {
    const auto label = static_cast<unsigned char>(pieces_[i].text[range.depth]);
    if (labels.empty() || labels.back() != label) {
      labels.push_back(label);
      children.push_back({i, i, range.depth + 1});
    }
    children.back().last = i + 1;
  }
  const std::uint32_t base = place(labels);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    Unit& unit = units_[base + labels[i]];
    unit.label = labels[i];
    unit.parent_base = base;
    Range& child = children[i];
    while (child.first < child.last && pieces_[child.first].text.size() == child.depth)
      unit.id = pieces_[child.first++].id;
  }
  for (std::size_t i = labels.size(); i > 0; --i)
    if (const Range& child = children[i - 1]; child.first < child.last)
      pending.push_back({child, base + labels[i - 1]});
  return base;
}

void PieceTrie::finish() {
  if (pieces_.empty()) return;
  std::stable_sort(pieces_.begin(), pieces_.end(),
                   [](const Piece& a, const Piece& b) { return a.text < b.text; });
  units_.resize(1024);
  used_bases_.resize(units_.size());
  std::vector<Pending> pending;  // a piece may be longer than a recursion can be deep
  root_base_ = add_children({0, pieces_.size(), 0}, pending);
  while (!pending.empty()) {
    const Pending next = pending.back();
    pending.pop_back();
    const std::uint32_t base = add_children(next.range, pending);
    units_[next.unit].base = base;
  }
  pieces_ = {};
  used_bases_ = {};
}

}  // namespace megatron
