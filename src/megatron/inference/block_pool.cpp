#include "megatron/inference/block_pool.h"

#include <algorithm>
#include <cstddef>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"

namespace megatron {

std::uint64_t prefix_hash(std::uint64_t parent, std::span<const std::int64_t> tokens) {
  return checksum(std::as_bytes(tokens)) ^ (parent * 0x9E3779B97F4A7C15u);
}

BlockPool::BlockPool(std::int64_t num_blocks, bool keeps_prefixes, PrefixHash hash)
    : num_blocks_(num_blocks), keeps_prefixes_(keeps_prefixes), hash_(hash) {}

BlockPool::Block& BlockPool::at(BlockId block) {
  return const_cast<Block&>(std::as_const(*this).at(block));
}

const BlockPool::Block& BlockPool::at(BlockId block) const {
  MEGATRON_CHECK(block >= 0 && block < std::ssize(blocks_), "block ", block, " of ",
                 blocks_.size());
  return blocks_[static_cast<std::size_t>(block)];
}

BlockId BlockPool::allocate() {
  MEGATRON_CHECK(num_available() > 0, "all ", num_blocks(), " blocks are in use");
  // Memory grows before a prefix is evicted.
  if (empty_.empty() && std::ssize(blocks_) < num_blocks_) {
    empty_.push_back(static_cast<BlockId>(blocks_.size()));
    blocks_.emplace_back();
  } else if (empty_.empty()) {
    withdraw(unused_.begin()->second);
  }
  const BlockId block = empty_.back();
  empty_.pop_back();
  at(block).num_references = 1;
  return block;
}

void BlockPool::retain(BlockId block) {
  Block& retained = at(block);
  MEGATRON_CHECK(retained.num_references > 0 || retained.entry != 0, "block ", block, " is free");
  if (retained.num_references++ == 0) unused_.erase({retained.released, block});
}

void BlockPool::release(BlockId block) {
  Block& released = at(block);
  MEGATRON_CHECK(released.num_references > 0, "block ", block, " has no references");
  if (--released.num_references > 0) return;
  released.released = ++clock_;
  if (released.entry == 0)
    empty_.push_back(block);
  else
    unused_.emplace(released.released, block);
}

std::optional<std::uint64_t> BlockPool::entry_of(std::optional<BlockId> parent) const {
  if (!parent) return 0;
  const std::uint64_t entry = at(*parent).entry;
  return entry == 0 ? std::nullopt : std::optional(entry);
}

std::optional<BlockId> BlockPool::find_entry(std::uint64_t hash, std::uint64_t parent,
                                             std::span<const std::int64_t> tokens) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return std::nullopt;
  const Block& block = at(found->second);
  if (block.parent != parent || !std::ranges::equal(block.tokens, tokens)) return std::nullopt;
  return found->second;
}

std::optional<BlockId> BlockPool::find(std::optional<BlockId> parent,
                                       std::span<const std::int64_t> tokens) const {
  const auto entry = entry_of(parent);
  return entry ? find_entry(hash_(*entry, tokens), *entry, tokens) : std::nullopt;
}

BlockId BlockPool::publish(BlockId block, std::optional<BlockId> parent,
                           std::span<const std::int64_t> tokens) {
  MEGATRON_CHECK(num_references(block) > 0, "block ", block, " has no references");
  const auto entry = entry_of(parent);
  if (!keeps_prefixes_ || !entry || at(block).entry != 0) return block;
  const std::uint64_t hash = hash_(*entry, tokens);
  if (const auto earlier = find_entry(hash, *entry, tokens)) {
    retain(*earlier);
    release(block);
    return *earlier;
  }
  // Where two texts have one hash, the first keeps the entry.
  if (!by_hash_.emplace(hash, block).second) return block;
  Block& published = at(block);
  published.entry = ++last_entry_;
  published.parent = *entry;
  published.hash = hash;
  published.tokens.assign(tokens.begin(), tokens.end());
  return block;
}

bool BlockPool::add_snapshot(BlockId block) {
  return at(block).entry != 0 && !std::exchange(at(block).has_snapshot, true);
}

void BlockPool::withdraw(BlockId block) {
  Block& withdrawn = at(block);
  if (withdrawn.entry == 0) return;
  by_hash_.erase(withdrawn.hash);
  withdrawn.entry = 0;
  withdrawn.has_snapshot = false;
  if (withdrawn.num_references > 0) return;
  unused_.erase({withdrawn.released, block});
  empty_.push_back(block);
}

void BlockPool::withdraw_all() {
  for (std::int64_t block = std::ssize(blocks_) - 1; block >= 0; --block)
    withdraw(static_cast<BlockId>(block));
}

}  // namespace megatron
