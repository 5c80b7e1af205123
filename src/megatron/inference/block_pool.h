// The blocks of a paged KV cache by number: which are free, how many sequences refer to each, and
// which hold a prefix that a later request can reuse. What a block contains is memory that others
// own; this class only counts.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace megatron {

/// The number of a block, from 0 to num_blocks − 1. The same in every layer and on every rank.
using BlockId = std::int32_t;

/// Hashes the tokens of a block that follows the prefix `parent`.
using PrefixHash = std::uint64_t (*)(std::uint64_t parent, std::span<const std::int64_t> tokens);
/// The hash that a pool uses by default: XXH3.
std::uint64_t prefix_hash(std::uint64_t parent, std::span<const std::int64_t> tokens);

/// Allocates blocks and remembers prefixes. A full block is published with the block before it and
/// its tokens; it keeps this entry when nobody refers to it any longer, until its memory is needed:
/// the least recently used block is evicted first. An entry is found by a hash, and its tokens and
/// the identity of its parent's entry are compared, so no collision of hashes can return the block
/// of another text. The same calls give the same numbers.
class BlockPool {
 public:
  /// `keeps_prefixes` false: publish() and find() do nothing.
  explicit BlockPool(std::int64_t num_blocks, bool keeps_prefixes = true,
                     PrefixHash hash = prefix_hash);

  std::int64_t num_blocks() const { return num_blocks_; }
  /// Returns how many blocks allocate() can give, including those that it would evict.
  std::int64_t num_available() const {
    return num_blocks_ - std::ssize(blocks_) + std::ssize(empty_) + std::ssize(unused_);
  }
  std::int64_t num_references(BlockId block) const {
    return block < std::ssize(blocks_) ? at(block).num_references : 0;
  }

  /// Returns a block with one reference and no entry. InternalError if none is available.
  BlockId allocate();
  /// Adds a reference to a block that has references or an entry.
  void retain(BlockId block);
  /// Drops a reference. With the last one the block becomes available; it keeps its entry. To have
  /// the end of a prefix evicted before its beginning, release it first.
  void release(BlockId block);

  /// Returns the block with these tokens after those of `parent` (nullopt: the first of a text).
  std::optional<BlockId> find(std::optional<BlockId> parent,
                              std::span<const std::int64_t> tokens) const;
  /// Makes a full block available to find(). Returns the block to use from now on: if another one
  /// with these contents was published before, the caller's reference moves to it. Without effect
  /// if `parent` has no entry.
  BlockId publish(BlockId block, std::optional<BlockId> parent,
                  std::span<const std::int64_t> tokens);
  /// Remembers with the entry of a block that there is a snapshot of the states behind it. Returns
  /// false if the block has no entry, or had a snapshot before.
  bool add_snapshot(BlockId block);
  void drop_snapshot(BlockId block) { at(block).has_snapshot = false; }
  bool has_snapshot(BlockId block) const { return at(block).has_snapshot; }
  /// Removes the entry of a block, if it has one, because it will be written again.
  void withdraw(BlockId block);
  /// Removes all entries, such as when the weights have changed.
  void withdraw_all();

 private:
  struct Block {
    std::int64_t num_references = 0;
    std::uint64_t released = 0;             ///< clock_ at the last release
    std::uint64_t entry = 0;                ///< unique number of its entry; 0: none
    std::uint64_t parent = 0;               ///< entry of the block before it; 0: first of a text
    std::uint64_t hash = 0;                 ///< of its entry
    std::vector<std::int64_t> tokens = {};  ///< of its entry
    bool has_snapshot = false;              ///< likewise
  };
  Block& at(BlockId block);
  const Block& at(BlockId block) const;
  /// Returns the number of an entry that `parent` stands for; nullopt if it has none.
  std::optional<std::uint64_t> entry_of(std::optional<BlockId> parent) const;
  /// Returns the block of an entry.
  std::optional<BlockId> find_entry(std::uint64_t hash, std::uint64_t parent,
                                    std::span<const std::int64_t> tokens) const;

  std::int64_t num_blocks_;
  std::vector<Block> blocks_;   ///< those that were ever used: the lowest numbers
  std::vector<BlockId> empty_;  ///< of them without references or entry; the last is given first
  std::set<std::pair<std::uint64_t, BlockId>> unused_;  ///< (released, number): only with entries
  std::unordered_map<std::uint64_t, BlockId> by_hash_;  ///< one entry for each hash
  std::uint64_t clock_ = 0;                             ///< counts releases
  std::uint64_t last_entry_ = 0;
  bool keeps_prefixes_;
  PrefixHash hash_;
};

}  // namespace megatron
