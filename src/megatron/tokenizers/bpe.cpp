#include "megatron/tokenizers/bpe.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <queue>
#include <span>
#include <tuple>

#include "megatron/base/error.h"
#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/hash_bytes.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr std::size_t kNumDirectCharacters = 0x400;
/// Up to this length a linear scan for the lowest rank is faster than a queue.
constexpr std::size_t kMaxLinearScan = 24;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::size_t hash_pair(std::uint64_t pair) {
  const std::uint64_t mixed = pair * 0x9E3779B97F4A7C15u;
  return static_cast<std::size_t>(mixed ^ mixed >> 32);
}

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const MergeViews& merges, BpeOptions options,
         const std::string& source)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  if (options_.unk_token) {
    unk_id_ = vocabulary_.find(*options_.unk_token);
    if (unk_id_ < 0)
      throw UserError(
          {source + ": unk_token \"" + *options_.unk_token + "\" is not in the vocabulary", "",
           ""});
  }
  id_of_character_.assign(kNumDirectCharacters, -1);
  for (char32_t c = 0; c < kNumDirectCharacters; ++c) {
    std::string character;
    append_utf8(character, c);
    id_of_character_[c] = vocabulary_.find(character);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", byte);
    id_of_byte_.push_back(vocabulary_.find(name));
  }
  add_merges(merges, source);
  word_cache_ = std::make_unique<std::atomic<WordCacheState>[]>(
      static_cast<std::size_t>(vocabulary_.id_limit()));
}

Bpe::~Bpe() = default;
Bpe::Bpe(Bpe&&) noexcept = default;

namespace {

/// Returns whether `token` is `left` and `right` together.
bool is_joined(std::string_view token, std::string_view left, std::string_view right) {
  return token.size() == left.size() + right.size() &&
         // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): the size is given.
         same_bytes(token.data(), left.data(), left.size()) &&
         same_bytes(token.data() + left.size(), right.data(), right.size());
}

[[noreturn]] void fail_for_missing(const std::string& source, const Bpe::MergeViews& merges,
                                   std::size_t rank, std::string_view token) {
  throw UserError({source + ": merge " + std::to_string(rank) + " (\"" +
                       std::string(merges[rank].first) + "\" + \"" +
                       std::string(merges[rank].second) + "\") needs token \"" +
                       std::string(token) + "\", which is not in the vocabulary",
                   "", "vocabulary and merges must come from the same tokenizer"});
}

}  // namespace

/// Returns the id of `left` and `right` together. Most merges make the tokens of a vocabulary in
/// their order, some of them in several ways: `last` is the id that the merge before made.
std::int32_t Bpe::joined_id(std::string_view left, std::string_view right,
                            std::int32_t last) const {
  if (last >= 0 && is_joined(vocabulary_.token(last), left, right)) return last;
  if (vocabulary_.contains(last + 1) && is_joined(vocabulary_.token(last + 1), left, right))
    return last + 1;
  return vocabulary_.find(std::string(left).append(right));
}

void Bpe::add_merges(const MergeViews& merges, const std::string& source) {
  merges_.resize(std::bit_ceil(merges.size() * 3 / 2 + 2));
  const std::size_t prefix = options_.continuing_subword_prefix.size(), mask = merges_.size() - 1;
  constexpr std::size_t kBatch = 32;
  std::array<std::string_view, 2 * kBatch> sides;
  std::array<std::int32_t, 2 * kBatch> ids;
  std::array<MergeSlot, kBatch> slots;
  std::int32_t merged = -1;
  for (std::size_t first = 0; first < merges.size(); first += kBatch) {
    const std::size_t count = std::min(kBatch, merges.size() - first);
    for (std::size_t i = 0; i < count; ++i)
      std::tie(sides[2 * i], sides[2 * i + 1]) = merges[first + i];
    vocabulary_.find_all(std::span(sides).first(2 * count), ids);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t rank = first + i;
      const std::string_view left = sides[2 * i], right = sides[2 * i + 1];
      if (ids[2 * i] < 0) fail_for_missing(source, merges, rank, left);
      if (ids[2 * i + 1] < 0) fail_for_missing(source, merges, rank, right);
      if (right.size() < prefix)
        throw UserError({source + ": merge " + std::to_string(rank) +
                             " has a right side shorter than continuing_subword_prefix",
                         std::string(right), ""});
      const std::string_view rest = right.substr(prefix);
      merged = joined_id(left, rest, merged);
      if (merged < 0) fail_for_missing(source, merges, rank, std::string(left).append(rest));
      slots[i] = {pair_key(ids[2 * i], ids[2 * i + 1]), {static_cast<std::uint32_t>(rank), merged}};
      __builtin_prefetch(&merges_[hash_pair(slots[i].pair) & mask], 1);
    }
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t at = hash_pair(slots[i].pair) & mask;
      while (merges_[at].pair != slots[i].pair && merges_[at].merge.id >= 0) at = (at + 1) & mask;
      merges_[at] = slots[i];
    }
  }
}

Bpe::Merge Bpe::find_merge(std::int32_t left, std::int32_t right) const {
  const std::uint64_t key = pair_key(left, right);
  for (std::size_t at = hash_pair(key) & (merges_.size() - 1); merges_[at].merge.id >= 0;
       at = (at + 1) & (merges_.size() - 1))
    if (merges_[at].pair == key) return merges_[at].merge;
  return {};
}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.empty()) return;
  const std::int32_t whole = vocabulary_.find(word);
  if (options_.ignore_merges && whole >= 0) {
    ids.push_back(whole);
  } else {
    merge(word, whole, ids);
  }
}

void Bpe::merge(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (!word.empty()) merge(word, vocabulary_.find(word), ids);
}

/// `whole` is the id of the token `word`; −1 if there is none.
void Bpe::merge(std::string_view word, std::int32_t whole, std::vector<std::int32_t>& ids) const {
  std::atomic<WordCacheState>* cache_entry =
      whole < 0 ? nullptr : &word_cache_[static_cast<std::size_t>(whole)];
  if (whole >= 0 && cache_entry->load(std::memory_order_relaxed) == WordCacheState::one_token) {
    ids.push_back(whole);
    return;
  }
  const std::size_t start = ids.size();
  append_initial(word, ids);
  if (ids.size() - start <= kMaxLinearScan) {
    merge_short(ids, start);
  } else {
    merge_long(ids, start);
  }
  if (cache_entry != nullptr) {
    const bool itself = ids.size() == start + 1 && ids[start] == whole;
    cache_entry->store(itself ? WordCacheState::one_token : WordCacheState::several,
                       std::memory_order_relaxed);
  }
}

bool Bpe::merges_bytes_only() const {
  if (!options_.continuing_subword_prefix.empty() || !options_.end_of_word_suffix.empty())
    return false;
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    append_byte_level(character, std::string(1, static_cast<char>(byte)));
    if (vocabulary_.find(character) < 0) return false;
  }
  return true;
}

std::int32_t Bpe::initial_id(std::string_view character, bool first, bool last) const {
  const std::string& prefix = options_.continuing_subword_prefix;
  const std::string& suffix = options_.end_of_word_suffix;
  if (prefix.empty() && suffix.empty()) return vocabulary_.find(character);
  return vocabulary_.find((first ? "" : prefix) + std::string(character) + (last ? suffix : ""));
}

/// Appends the id of each byte. Returns false if one has none.
bool Bpe::append_byte_fallback(std::string_view character, bool first, bool last,
                               std::vector<std::int32_t>& ids) const {
  const std::string bytes = (first ? "" : options_.continuing_subword_prefix) +
                            std::string(character) + (last ? options_.end_of_word_suffix : "");
  for (const char byte : bytes)
    if (id_of_byte_[static_cast<unsigned char>(byte)] < 0) return false;
  for (const char byte : bytes) ids.push_back(id_of_byte_[static_cast<unsigned char>(byte)]);
  return true;
}

/// Appends the id of each character.
void Bpe::append_initial(std::string_view word, std::vector<std::int32_t>& ids) const {
  const bool direct =
      options_.continuing_subword_prefix.empty() && options_.end_of_word_suffix.empty();
  // With fuse_unk, byte tokens do not end a run of unknown characters; they precede its unk_token.
  bool has_unknown = false;
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(word, i);
    const std::string_view character = word.substr(begin, i - begin);
    const std::int32_t id = direct && c < kNumDirectCharacters
                                ? id_of_character_[c]
                                : initial_id(character, begin == 0, i == word.size());
    if (id >= 0) {
      if (has_unknown) ids.push_back(unk_id_);
      has_unknown = false;
      ids.push_back(id);
    } else if (options_.byte_fallback &&
               append_byte_fallback(character, begin == 0, i == word.size(), ids)) {
      continue;
    } else if (unk_id_ >= 0) {
      if (has_unknown && !options_.fuse_unk) ids.push_back(unk_id_);
      has_unknown = true;
    }
  }
  if (has_unknown) ids.push_back(unk_id_);
}

void Bpe::merge_short(std::vector<std::int32_t>& ids, std::size_t start) const {
  std::size_t count = ids.size() - start;
  std::array<Merge, kMaxLinearScan> merges;
  for (std::size_t i = 0; i + 1 < count; ++i)
    merges[i] = find_merge(ids[start + i], ids[start + i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (merges[i].rank < merges[best].rank) best = i;
    if (merges[best].id < 0) break;
    ids[start + best] = merges[best].id;
    for (std::size_t i = best + 1; i + 1 < count; ++i) {
      ids[start + i] = ids[start + i + 1];
      merges[i - 1] = merges[i];
    }
    --count;
    if (best > 0) merges[best - 1] = find_merge(ids[start + best - 1], ids[start + best]);
    if (best + 1 < count) merges[best] = find_merge(ids[start + best], ids[start + best + 1]);
  }
  ids.resize(start + count);
}

void Bpe::merge_long(std::vector<std::int32_t>& ids, std::size_t start) const {
  constexpr std::size_t kNone = ~std::size_t{0};
  struct Node {
    std::int32_t id;
    std::size_t previous, next;
  };
  struct Candidate {
    std::uint32_t rank;
    std::size_t position;
    std::int32_t id;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };
  const std::size_t count = ids.size() - start;
  std::vector<Node> nodes(count);
  for (std::size_t i = 0; i < count; ++i)
    nodes[i] = {ids[start + i], i == 0 ? kNone : i - 1, i + 1 == count ? kNone : i + 1};
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::size_t position) {
    if (position == kNone || nodes[position].next == kNone) return;
    const Merge merge = find_merge(nodes[position].id, nodes[nodes[position].next].id);
    if (merge.id >= 0) queue.push({merge.rank, position, merge.id});
  };
  for (std::size_t i = 0; i < count; ++i) offer(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Node& node = nodes[top.position];
    if (node.id < 0 || node.next == kNone) continue;
    const std::size_t right_at = node.next;
    Node& right = nodes[right_at];
    if (find_merge(node.id, right.id).id != top.id) continue;  // the candidate is outdated
    node.id = top.id;
    node.next = right.next;
    right.id = -1;
    if (node.next != kNone) nodes[node.next].previous = top.position;
    offer(node.previous);
    offer(top.position);
  }
  ids.resize(start);
  for (std::size_t i = 0; i != kNone; i = nodes[i].next) ids.push_back(nodes[i].id);
}

}  // namespace megatron
