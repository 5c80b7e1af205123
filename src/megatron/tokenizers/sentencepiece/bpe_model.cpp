#include "megatron/tokenizers/sentencepiece/bpe_model.h"

#include <algorithm>
#include <queue>

namespace megatron::sentencepiece {
namespace {

/// Up to this many symbols a linear scan for the best pair is faster than a queue.
constexpr std::size_t kMaxLinearScan = 32;
constexpr std::uint32_t kNoMerge = ~0u;

}  // namespace

struct BpeModel::Symbol {
  std::string_view text;  ///< empty once merged into the one before
  bool is_frozen = false;
  std::uint32_t priority = kNoMerge;  ///< of this symbol and the next one together
};

/// The pairs that formed unused pieces, which are split again at the end.
struct BpeModel::Merges {
  std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> parts;
};

BpeModel::BpeModel(const Pieces& pieces) : pieces_(pieces) {
  std::vector<float> scores;
  for (std::int32_t id = 0; id < pieces.size(); ++id) {
    scores.push_back(pieces.score(id));
    has_unused_ = has_unused_ || pieces.is_unused(id);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  for (std::int32_t id = 0; id < pieces.size(); ++id)
    priority_.push_back(static_cast<std::uint32_t>(
        std::lower_bound(scores.begin(), scores.end(), pieces.score(id), std::greater<>()) -
        scores.begin()));
}

std::int32_t BpeModel::merged_id(const Symbol& left, const Symbol& right, Merges& merges) const {
  if (left.is_frozen || right.is_frozen) return -1;
  const std::string_view merged(left.text.data(), left.text.size() + right.text.size());
  const std::int32_t id = pieces_.find(merged);
  if (id >= 0 && has_unused_ && pieces_.is_unused(id))
    merges.parts[merged] = {left.text, right.text};
  return id;
}

void BpeModel::encode(std::string_view text, std::vector<EncodedPiece>& out) const {
  std::vector<Symbol> symbols;
  symbols.reserve(std::min<std::size_t>(text.size(), 1 << 16));
  for (std::size_t at = 0; at < text.size();) {
    Symbol symbol;
    const std::size_t length = pieces_.prefix_length(text.substr(at), symbol.is_frozen);
    symbol.text = text.substr(at, length);
    symbols.push_back(symbol);
    at += length;
  }
  Merges merges;
  if (symbols.size() <= kMaxLinearScan) {
    merge_short(symbols, merges);
  } else {
    merge_long(symbols, merges);
  }
  for (const Symbol& symbol : symbols)
    if (!symbol.text.empty()) resegment(symbol.text, merges, out);
}

void BpeModel::merge_short(std::vector<Symbol>& symbols, Merges& merges) const {
  const auto update = [&](std::size_t i) {
    symbols[i].priority = kNoMerge;
    if (i + 1 >= symbols.size()) return;
    const std::int32_t id = merged_id(symbols[i], symbols[i + 1], merges);
    if (id >= 0) symbols[i].priority = priority_[static_cast<std::size_t>(id)];
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) update(i);
  while (symbols.size() > 1) {
    const auto best =
        std::min_element(symbols.begin(), symbols.end(),
                         [](const Symbol& a, const Symbol& b) { return a.priority < b.priority; });
    if (best->priority == kNoMerge) return;
    best->text = {best->text.data(), best->text.size() + (best + 1)->text.size()};
    const auto i = static_cast<std::size_t>(best - symbols.begin());
    symbols.erase(best + 1);
    update(i);
    if (i > 0) update(i - 1);
  }
}

void BpeModel::merge_long(std::vector<Symbol>& symbols, Merges& merges) const {
  constexpr std::size_t kNone = ~std::size_t{0};
  struct Candidate {
    std::uint32_t priority;
    std::size_t left;
    std::size_t size;  ///< of the merged piece
    bool operator>(const Candidate& other) const {
      return priority != other.priority ? priority > other.priority : left > other.left;
    }
  };
  struct Link {
    std::size_t previous, next;
  };
  std::vector<Link> links(symbols.size());
  for (std::size_t i = 0; i < symbols.size(); ++i)
    links[i] = {i == 0 ? kNone : i - 1, i + 1 == symbols.size() ? kNone : i + 1};
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::size_t left) {
    if (left == kNone || links[left].next == kNone) return;
    const Symbol &a = symbols[left], &b = symbols[links[left].next];
    const std::int32_t id = merged_id(a, b, merges);
    if (id >= 0)
      queue.push({priority_[static_cast<std::size_t>(id)], left, a.text.size() + b.text.size()});
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.left];
    const std::size_t right = links[top.left].next;
    if (left.text.empty() || right == kNone ||
        left.text.size() + symbols[right].text.size() != top.size)
      continue;  // the candidate is outdated
    left.text = {left.text.data(), top.size};
    links[top.left].next = links[right].next;
    if (links[right].next != kNone) links[links[right].next].previous = top.left;
    symbols[right].text = {};
    offer(links[top.left].previous);
    offer(top.left);
  }
}

void BpeModel::resegment(std::string_view piece, const Merges& merges,
                         std::vector<EncodedPiece>& out) const {
  const std::int32_t id = pieces_.id_of(piece);
  const auto parts =
      has_unused_ && pieces_.is_unused(id) ? merges.parts.find(piece) : merges.parts.end();
  if (parts == merges.parts.end()) {
    out.push_back({piece, id});
    return;
  }
  resegment(parts->second.first, merges, out);
  resegment(parts->second.second, merges, out);
}

}  // namespace megatron::sentencepiece
