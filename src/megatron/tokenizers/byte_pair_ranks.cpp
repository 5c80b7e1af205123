#include "megatron/tokenizers/byte_pair_ranks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <queue>

#include "megatron/tokenizers/hash_bytes.h"

namespace megatron {
namespace {

/// Up to this many bytes a linear scan for the lowest rank is faster than a queue.
constexpr std::size_t kMaxLinearScan = 64;

}  // namespace

void BytePairRanks::reserve(std::size_t count, std::size_t bytes) {
  arena_.reserve(bytes);
  offsets_.reserve(count + 1);
  ids_.reserve(count);
  slots_.assign(std::bit_ceil(count * 2 + 2), {});
}

void BytePairRanks::grow() {
  HugePageVector<Slot> old = std::move(slots_);
  slots_.assign(std::bit_ceil(size() * 4 + 2), {});
  for (const Slot& slot : old) {
    if (slot.rank == kNoRank) continue;
    std::size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].rank != kNoRank) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

void BytePairRanks::prefetch(std::string_view token) const {
  if (!slots_.empty()) __builtin_prefetch(&slots_[hash_bytes(token) & (slots_.size() - 1)], 1);
}

bool BytePairRanks::add(std::string_view token, std::int32_t id) {
  if (size() * 2 + 2 > slots_.size()) grow();
  const std::uint32_t hash = hash_bytes(token);
  std::size_t at = hash & (slots_.size() - 1);
  for (; slots_[at].rank != kNoRank; at = (at + 1) & (slots_.size() - 1))
    if (slots_[at].hash == hash && token_of_rank(slots_[at].rank) == token) return false;
  slots_[at] = {hash, static_cast<std::uint32_t>(size())};
  if (token.size() == 2)
    ranks_of_pairs_[static_cast<std::size_t>(static_cast<unsigned char>(token[0])) << 8 |
                    static_cast<unsigned char>(token[1])] = static_cast<std::uint32_t>(size());
  ids_.push_back(id);
  arena_.append(token);
  offsets_.push_back(static_cast<std::uint32_t>(arena_.size()));
  longest_ = std::max(longest_, token.size());
  return true;
}

std::uint32_t BytePairRanks::rank_of(std::string_view bytes) const {
  if (bytes.size() > longest_) return kNoRank;
  const std::uint32_t hash = hash_bytes(bytes);
  for (std::size_t at = hash & (slots_.size() - 1); slots_[at].rank != kNoRank;
       at = (at + 1) & (slots_.size() - 1))
    if (slots_[at].hash == hash && token_of_rank(slots_[at].rank) == bytes) return slots_[at].rank;
  return kNoRank;
}

std::int32_t BytePairRanks::find(std::string_view token) const {
  const std::uint32_t rank = slots_.empty() ? kNoRank : rank_of(token);
  return rank == kNoRank ? -1 : ids_[rank];
}

std::string_view BytePairRanks::token(std::int32_t id) const {
  if (ids_.empty() || id < ids_.front()) return {};
  auto rank = static_cast<std::size_t>(id - ids_.front());
  if (rank >= ids_.size() || ids_[rank] != id) {  // the ids have gaps
    const auto found = std::lower_bound(ids_.begin(), ids_.end(), id);
    if (found == ids_.end() || *found != id) return {};
    rank = static_cast<std::size_t>(found - ids_.begin());
  }
  return token_of_rank(rank);
}

int BytePairRanks::missing_byte() const {
  for (int byte = 0; byte < 256; ++byte)
    if (find(std::string(1, static_cast<char>(byte))) < 0) return byte;
  return -1;
}

void BytePairRanks::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (const std::uint32_t whole = rank_of(word); whole != kNoRank) {
    ids.push_back(ids_[whole]);
  } else {
    merge(word, ids);
  }
}

void BytePairRanks::merge(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (word.size() <= kMaxLinearScan) {
    merge_short(word, ids);
  } else {
    merge_long(word, ids);
  }
}

void BytePairRanks::merge_short(std::string_view word, std::vector<std::int32_t>& ids) const {
  struct Part {
    std::uint32_t begin;
    std::uint32_t rank;  ///< of this part and the next one together
  };
  std::array<Part, kMaxLinearScan + 1> parts;
  std::size_t count = word.size();
  for (std::size_t i = 0; i <= count; ++i) parts[i] = {static_cast<std::uint32_t>(i), kNoRank};
  const auto pair_rank = [&](std::size_t i) {
    return i + 2 > count
               ? kNoRank
               : rank_of(word.substr(parts[i].begin, parts[i + 2].begin - parts[i].begin));
  };
  for (std::size_t i = 0; i + 1 < count; ++i) parts[i].rank = rank_of_pair(word.data() + i);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i)
      if (parts[i].rank < parts[best].rank) best = i;
    if (parts[best].rank == kNoRank) break;
    std::memmove(&parts[best + 1], &parts[best + 2], (count - best - 1) * sizeof(Part));
    --count;
    parts[best].rank = pair_rank(best);
    if (best > 0) parts[best - 1].rank = pair_rank(best - 1);
  }
  for (std::size_t i = 0; i < count; ++i)
    ids.push_back(ids_[rank_of(word.substr(parts[i].begin, parts[i + 1].begin - parts[i].begin))]);
}

void BytePairRanks::merge_long(std::string_view word, std::vector<std::int32_t>& ids) const {
  constexpr std::size_t kNone = ~std::size_t{0};
  struct Part {
    std::size_t previous, next;  ///< beginnings of the neighbors; word.size() at the end
    std::uint32_t rank;          ///< of this part and the next one together
  };
  struct Candidate {
    std::uint32_t rank;
    std::size_t begin;
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : begin > other.begin;
    }
  };
  std::vector<Part> parts(word.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto offer = [&](std::size_t begin) {
    const std::size_t next = parts[begin].next;
    parts[begin].rank =
        next == word.size() ? kNoRank : rank_of(word.substr(begin, parts[next].next - begin));
    if (parts[begin].rank != kNoRank) queue.push({parts[begin].rank, begin});
  };
  for (std::size_t i = 0; i < word.size(); ++i) parts[i] = {i == 0 ? kNone : i - 1, i + 1, kNoRank};
  for (std::size_t i = 0; i < word.size(); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate top = queue.top();
    queue.pop();
    Part& part = parts[top.begin];
    if (part.rank != top.rank) continue;  // the candidate is outdated
    const std::size_t merged = part.next;
    part.next = parts[merged].next;
    parts[merged].rank = kNoRank;
    if (part.next != word.size()) parts[part.next].previous = top.begin;
    offer(top.begin);
    if (part.previous != kNone) offer(part.previous);
  }
  for (std::size_t i = 0; i < word.size(); i = parts[i].next)
    ids.push_back(ids_[rank_of(word.substr(i, parts[i].next - i))]);
}

}  // namespace megatron
