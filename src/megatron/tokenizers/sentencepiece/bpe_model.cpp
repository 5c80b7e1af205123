#include "megatron/tokenizers/sentencepiece/bpe_model.h"

#include <algorithm>
#include <array>
#include <queue>
#include <unordered_map>

#include "megatron/tokenizers/sentencepiece/normalizer.h"
#include "megatron/tokenizers/utf8.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron::sentencepiece {
namespace {

/// Up to this many bytes a linear scan for the best pair is faster than a queue.
constexpr std::size_t kMaxLinearScan = 48;
/// The symbol of a user-defined piece, which is merged with nothing.
constexpr std::int32_t kFrozen = -1;
/// Characters that are no piece are symbols from this number on.
constexpr std::int32_t kFirstCharacter = std::int32_t{1} << 30;
/// The number of characters whose pairs have a table: ASCII without its last one, and ▁.
constexpr unsigned kNumDirect = 128;

/// Returns the number of a direct character; kNumDirect for others.
constexpr std::uint8_t direct_character(char32_t c) {
  if (c < kNumDirect - 1) return static_cast<std::uint8_t>(c);
  return c == 0x2581 ? kNumDirect - 1 : kNumDirect;
}

}  // namespace

/// It has no initializers, so that an array of them costs nothing.
struct BpeModel::Symbol {
  const char* data;
  std::size_t size;     ///< 0 once merged into the one before
  std::int32_t id;      ///< of the piece; otherwise kFrozen, or a number for the character
  std::uint8_t direct;  ///< number of the direct character
  PairMerge merge;      ///< of this symbol and the next one together
  std::string_view text() const { return {data, size}; }
};

/// What a text is encoded with.
struct BpeModel::Merges {
  PairCache& cache;
  /// The pairs that formed unused pieces, which are split again at the end.
  std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> parts = {};
};

BpeModel::BpeModel(const ModelFile& model, const Pieces& pieces, const CharacterTable& characters)
    : pieces_(pieces), characters_(characters), cache_owner_(WordCache::new_owner()) {
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
  if (!has_unused_) find_merges_of_ascii(model);
}

/// Fills the table of what two direct characters make.
void BpeModel::find_merges_of_ascii(const ModelFile& model) {
  merges_of_ascii_.assign(std::size_t{kNumDirect} * kNumDirect, kNoPairMerge);
  for (std::int32_t id = 0; id < pieces_.size(); ++id) {
    const std::string_view text = model.pieces[static_cast<std::size_t>(id)].text;
    if (!pieces_.is_segmentable(id) || text.size() > 2 * kSpaceSymbol.size()) continue;
    std::size_t at = 0;
    const unsigned left = direct_character(next_code_point(text, at));
    if (at == text.size()) continue;
    const unsigned right = direct_character(next_code_point(text, at));
    if (at == text.size() && left < kNumDirect && right < kNumDirect)
      merges_of_ascii_[left * kNumDirect + right] = {id, priority_[static_cast<std::size_t>(id)]};
  }
}

/// Returns the user-defined piece or the character that `text` begins with.
BpeModel::Symbol BpeModel::symbol_at(std::string_view text) const {
  bool is_frozen = false;
  const std::size_t length = pieces_.prefix_length(text, is_frozen);
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): the length is given.
  Symbol symbol{text.data(), length, kFrozen, kNumDirect, kNoPairMerge};
  if (is_frozen) return symbol;
  std::size_t end = 0;
  const char32_t c = next_code_point(text, end);
  symbol.direct = direct_character(c);
  symbol.id = c < CharacterTable::kSize ? characters_.id(c) : pieces_.find(symbol.text());
  if (symbol.id < 0 || !pieces_.is_segmentable(symbol.id))
    symbol.id = kFirstCharacter + static_cast<std::int32_t>(c);
  return symbol;
}

/// Returns the merge of two characters.
PairMerge BpeModel::initial_merge(const Symbol& left, const Symbol& right, Merges& merges) const {
  if (left.direct < kNumDirect && right.direct < kNumDirect && !has_unused_)
    return merges_of_ascii_[left.direct * kNumDirect + right.direct];
  return merge_of(left, right, merges);
}

PairMerge BpeModel::merge_of(const Symbol& left, const Symbol& right, Merges& merges) const {
  if (left.id == kFrozen || right.id == kFrozen) return kNoPairMerge;
  const std::string_view merged(left.data, left.size + right.size);
  const PairMerge merge = merges.cache.find(left.id, right.id, [&]() -> PairMerge {
    const std::int32_t id = pieces_.find(merged);
    return id < 0 ? kNoPairMerge : PairMerge{id, priority_[static_cast<std::size_t>(id)]};
  });
  if (has_unused_ && merge.id >= 0 && pieces_.is_unused(merge.id))
    merges.parts[merged] = {left.text(), right.text()};
  return merge;
}

void BpeModel::encode(std::string_view text, std::vector<EncodedPiece>& out) const {
  Merges merges{PairCache::of_thread(cache_owner_)};
  if (text.size() <= kMaxLinearScan) {
    std::array<Symbol, kMaxLinearScan> symbols;
    std::size_t count = 0;
    for (std::size_t at = 0; at < text.size(); at += symbols[count++].size)
      symbols[count] = symbol_at(text.substr(at));
    for (const Symbol& symbol : merge_short(std::span(symbols).first(count), merges))
      append(symbol, merges, out);
    return;
  }
  std::vector<Symbol> symbols;
  symbols.reserve(std::min<std::size_t>(text.size(), 1 << 16));
  for (std::size_t at = 0; at < text.size(); at += symbols.back().size)
    symbols.push_back(symbol_at(text.substr(at)));
  merge_long(symbols, merges);
  for (const Symbol& symbol : symbols)
    if (symbol.size > 0) append(symbol, merges, out);
}

/// Returns the symbols that are left.
std::span<BpeModel::Symbol> BpeModel::merge_short(std::span<Symbol> symbols, Merges& merges) const {
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
    symbols[i].merge = initial_merge(symbols[i], symbols[i + 1], merges);
  while (symbols.size() > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < symbols.size(); ++i)
      if (symbols[i].merge.priority < symbols[best].merge.priority) best = i;
    Symbol& merged = symbols[best];
    if (merged.merge.id < 0) break;
    merged.size += symbols[best + 1].size;
    merged.id = merged.merge.id;
    std::copy(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 2, symbols.end(),
              symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    symbols = symbols.first(symbols.size() - 1);
    const bool is_last = best + 1 == symbols.size();
    merged.merge = is_last ? kNoPairMerge : merge_of(merged, symbols[best + 1], merges);
    if (best > 0) symbols[best - 1].merge = merge_of(symbols[best - 1], merged, merges);
  }
  return symbols;
}

void BpeModel::merge_long(std::span<Symbol> symbols, Merges& merges) const {
  constexpr std::size_t kNone = ~std::size_t{0};
  struct Candidate {
    std::uint32_t priority;
    std::size_t left;
    std::size_t size;  ///< of the merged piece
    std::int32_t id;
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
    const PairMerge merge = merge_of(a, b, merges);
    if (merge.id >= 0) queue.push({merge.priority, left, a.size + b.size, merge.id});
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Symbol& left = symbols[top.left];
    const std::size_t right = links[top.left].next;
    if (left.size == 0 || right == kNone || left.size + symbols[right].size != top.size)
      continue;  // the candidate is outdated
    left.size = top.size;
    left.id = top.id;
    links[top.left].next = links[right].next;
    if (links[right].next != kNone) links[links[right].next].previous = top.left;
    symbols[right].size = 0;
    offer(links[top.left].previous);
    offer(top.left);
  }
}

void BpeModel::append(const Symbol& symbol, const Merges& merges,
                      std::vector<EncodedPiece>& out) const {
  const bool is_piece = symbol.id >= 0 && symbol.id < kFirstCharacter;
  if (is_piece && !has_unused_) {
    out.push_back({symbol.text(), symbol.id});
  } else {
    resegment(symbol.text(), merges, out);
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
