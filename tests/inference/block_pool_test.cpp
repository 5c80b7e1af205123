#include "megatron/inference/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Tokens = std::vector<std::int64_t>;

TEST(BlockPool, GivesLowNumbersFirstAndCountsReferences) {
  BlockPool pool(3);
  EXPECT_EQ(pool.allocate(), 0);
  EXPECT_EQ(pool.allocate(), 1);
  pool.retain(1);
  pool.release(1);
  EXPECT_EQ(pool.num_references(1), 1);
  EXPECT_EQ(pool.num_available(), 1);
  pool.release(1);
  EXPECT_EQ(pool.num_available(), 2);
  EXPECT_EQ(pool.allocate(), 1);
  EXPECT_EQ(pool.allocate(), 2);
  EXPECT_THROW(pool.allocate(), InternalError);
  pool.release(2);
  EXPECT_THROW(pool.release(2), InternalError);
  EXPECT_THROW(pool.retain(2), InternalError);
  EXPECT_THROW(pool.retain(3), InternalError);
}

/// Allocates a block and publishes it.
BlockId publish_new(BlockPool& pool, std::optional<BlockId> parent, const Tokens& tokens) {
  return pool.publish(pool.allocate(), parent, tokens);
}

TEST(BlockPool, FindsTokensOnlyAfterTheSamePrefix) {
  BlockPool pool(4);
  const BlockId a = publish_new(pool, std::nullopt, {1, 2});
  const BlockId b = publish_new(pool, std::nullopt, {3, 4});
  const BlockId after_a = publish_new(pool, a, {5, 6});
  EXPECT_EQ(pool.find(std::nullopt, Tokens{1, 2}), a);
  EXPECT_EQ(pool.find(a, Tokens{5, 6}), after_a);
  EXPECT_EQ(pool.find(b, Tokens{5, 6}), std::nullopt);
  EXPECT_EQ(pool.find(std::nullopt, Tokens{5, 6}), std::nullopt);
  EXPECT_EQ(pool.find(a, Tokens{5, 7}), std::nullopt);
}

TEST(BlockPool, SnapshotsLastAsLongAsEntries) {
  BlockPool pool(2);
  const BlockId a = publish_new(pool, std::nullopt, {1, 2});
  EXPECT_FALSE(pool.has_snapshot(a));
  EXPECT_TRUE(pool.add_snapshot(a));
  EXPECT_FALSE(pool.add_snapshot(a)) << "it has one";
  pool.release(a);
  EXPECT_TRUE(pool.has_snapshot(a));
  const BlockId b = pool.allocate();
  EXPECT_FALSE(pool.add_snapshot(b)) << "it is not published";
  EXPECT_EQ(pool.allocate(), a);
  EXPECT_FALSE(pool.has_snapshot(a));
}

TEST(BlockPool, KeepsOneBlockOfEqualPrefixes) {
  BlockPool pool(2);
  const BlockId first = publish_new(pool, std::nullopt, {1, 2});
  EXPECT_EQ(publish_new(pool, std::nullopt, {1, 2}), first);
  EXPECT_EQ(pool.num_references(first), 2);
  EXPECT_EQ(pool.num_available(), 1);
}

TEST(BlockPool, EvictsTheLeastRecentlyReleased) {
  BlockPool pool(3);
  const BlockId a = publish_new(pool, std::nullopt, {1});
  const BlockId b = publish_new(pool, a, {2});
  pool.release(b);
  pool.release(a);
  EXPECT_EQ(pool.find(a, Tokens{2}), b);
  EXPECT_EQ(pool.allocate(), 2) << "a block without entry is taken first";
  pool.retain(b);
  pool.release(b);  // b is now the one released last
  EXPECT_EQ(pool.allocate(), a);
  EXPECT_EQ(pool.find(std::nullopt, Tokens{1}), std::nullopt);
  // The same prefix again is another entry: what followed the first is not found behind it.
  EXPECT_EQ(pool.publish(a, std::nullopt, Tokens{1}), a);
  EXPECT_EQ(pool.find(a, Tokens{2}), std::nullopt);
}

TEST(BlockPool, WithdrawsEntries) {
  BlockPool pool(2);
  const BlockId a = publish_new(pool, std::nullopt, {1});
  const BlockId b = publish_new(pool, a, {2});
  pool.release(b);
  pool.withdraw(b);
  EXPECT_EQ(pool.find(a, Tokens{2}), std::nullopt);
  EXPECT_EQ(pool.num_available(), 1);
  pool.withdraw(a);
  EXPECT_EQ(pool.find(std::nullopt, Tokens{1}), std::nullopt);
  EXPECT_EQ(pool.num_references(a), 1);
  EXPECT_EQ(pool.publish(a, std::nullopt, Tokens{3}), a);
  EXPECT_EQ(pool.find(std::nullopt, Tokens{3}), a);
  pool.withdraw_all();
  EXPECT_EQ(pool.find(std::nullopt, Tokens{3}), std::nullopt);
}

TEST(BlockPool, WithoutPrefixesPublishesNothing) {
  BlockPool pool(2, /*keeps_prefixes=*/false);
  publish_new(pool, std::nullopt, {1});
  EXPECT_EQ(pool.find(std::nullopt, Tokens{1}), std::nullopt);
}

/// Gives many texts the same hash.
std::uint64_t colliding_hash(std::uint64_t parent, std::span<const std::int64_t> tokens) {
  return (parent + static_cast<std::uint64_t>(tokens.front())) % 5;
}

constexpr std::int64_t kSize = 2;  ///< tokens in a block
constexpr std::int64_t kNumBlocks = 24;

/// Random texts that share blocks. The contents of a block are all tokens up to its end.
class PoolOfTexts {
 public:
  explicit PoolOfTexts(PrefixHash hash) : pool_(kNumBlocks, true, hash) {}

  void operate() {
    const std::int64_t kind = draw(100);
    if (texts_.empty() || (kind < 50 && texts_.size() < 12))
      begin();
    else if (kind < 85)
      end();
    else if (kind < 92)
      fork();
    else if (kind < 99)
      rewrite();
    else if (draw(20) == 0)
      pool_.withdraw_all();
    check();
  }

  void end_all() {
    while (!texts_.empty()) end();
    check();
    EXPECT_EQ(pool_.num_available(), kNumBlocks);
  }

  std::int64_t num_found() const { return num_found_; }

 private:
  struct Text {
    Tokens tokens;
    std::vector<BlockId> blocks;
  };

  std::int64_t draw(std::int64_t below) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(below));
  }

  static std::optional<BlockId> last_of(const Text& text) {
    return text.blocks.empty() ? std::nullopt : std::optional(text.blocks.back());
  }

  /// Takes the found beginning of a random text, and allocates and publishes the rest.
  void begin() {
    Text text;
    bool finds = true;
    for (std::int64_t count = 1 + draw(6); count > 0; --count) {
      const Tokens own{draw(2), draw(2)};
      Tokens whole = text.tokens;
      whole.insert(whole.end(), own.begin(), own.end());
      const auto found = finds ? pool_.find(last_of(text), own) : std::nullopt;
      finds = found.has_value();
      if (found) {
        ++num_found_;
        ASSERT_EQ(contents_[*found], whole);
        pool_.retain(*found);
        text.blocks.push_back(*found);
      } else {
        if (pool_.num_available() == 0) break;
        const BlockId block = pool_.allocate();
        ASSERT_EQ(num_holders(block), 0);
        contents_[block] = whole;
        text.blocks.push_back(pool_.publish(block, last_of(text), own));
        ASSERT_EQ(contents_[text.blocks.back()], whole);
      }
      text.tokens = whole;
    }
    texts_.push_back(text);
  }

  void end() {
    const auto text = texts_.begin() + draw(std::ssize(texts_));
    for (auto block = text->blocks.rbegin(); block != text->blocks.rend(); ++block)
      pool_.release(*block);
    texts_.erase(text);
  }

  void fork() {
    const Text copy = texts_[static_cast<std::size_t>(draw(std::ssize(texts_)))];
    for (const BlockId block : copy.blocks) pool_.retain(block);
    texts_.push_back(copy);
  }

  /// Writes the last block of a text again, if no other text has it.
  void rewrite() {
    Text& text = texts_[static_cast<std::size_t>(draw(std::ssize(texts_)))];
    if (text.blocks.empty() || pool_.num_references(text.blocks.back()) > 1) return;
    const BlockId block = text.blocks.back();
    pool_.withdraw(block);
    text.tokens.back() = draw(2);
    contents_[block] = text.tokens;
    text.blocks.pop_back();
    const std::span<const std::int64_t> tokens(text.tokens);
    text.blocks.push_back(
        pool_.publish(block, last_of(text), tokens.last(static_cast<std::size_t>(kSize))));
    ASSERT_EQ(contents_[text.blocks.back()], text.tokens);
  }

  std::int64_t num_holders(BlockId block) const {
    std::int64_t sum = 0;
    for (const Text& text : texts_) sum += std::ranges::count(text.blocks, block);
    return sum;
  }

  void check() {
    std::int64_t num_free = 0;
    for (BlockId block = 0; block < kNumBlocks; ++block) {
      const std::int64_t holders = num_holders(block);
      ASSERT_EQ(pool_.num_references(block), holders) << "block " << block;
      num_free += holders == 0 ? 1 : 0;
    }
    ASSERT_EQ(pool_.num_available(), num_free);
  }

  std::mt19937 random_{1};
  BlockPool pool_;
  std::vector<Text> texts_;
  std::map<BlockId, Tokens> contents_;
  std::int64_t num_found_ = 0;
};

class RandomPool : public testing::TestWithParam<PrefixHash> {};

TEST_P(RandomPool, LosesNoBlockAndFindsNoOtherText) {
  PoolOfTexts texts(GetParam());
  for (int i = 0; i < 100'000 && !HasFatalFailure(); ++i) texts.operate();
  texts.end_all();
  EXPECT_GT(texts.num_found(), 1000);
}

INSTANTIATE_TEST_SUITE_P(Hashes, RandomPool, testing::Values(prefix_hash, colliding_hash));

}  // namespace
}  // namespace megatron
