#include "megatron/datasets/packing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "megatron/datasets/conversation_packing.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;

/// Follows the definition of best-fit decreasing with a search over all rows.
std::vector<std::vector<std::uint32_t>> reference(const std::vector<std::int32_t>& lengths,
                                                  std::int64_t capacity) {
  std::vector<std::uint32_t> order(lengths.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](auto a, auto b) { return lengths[a] > lengths[b]; });
  struct Row {
    std::int64_t space;
    std::vector<std::uint32_t> items;
  };
  std::map<std::uint32_t, Row> rows;  // by longest item
  for (const std::uint32_t item : order) {
    Row* best = nullptr;
    for (auto& [name, row] : rows)
      if (row.space >= lengths[item] && (best == nullptr || row.space < best->space)) best = &row;
    if (best == nullptr) best = &rows.insert({item, {capacity, {}}}).first->second;
    best->items.push_back(item);
    best->space -= lengths[item];
  }
  std::vector<std::vector<std::uint32_t>> result;
  for (auto& [name, row] : rows) {
    std::ranges::sort(row.items);
    result.push_back(row.items);
  }
  return result;
}

TEST(BestFitDecreasing, FillsTheRowWithTheLeastSpace) {
  const Packing packing = pack_best_fit_decreasing(std::vector<std::int32_t>{6, 4, 3, 5, 2}, 10);
  ASSERT_EQ(packing.size(), 2);
  EXPECT_THAT(packing.row(0), ElementsAre(0, 1));
  EXPECT_THAT(packing.row(1), ElementsAre(2, 3, 4));
  EXPECT_EQ(pack_best_fit_decreasing({}, 10).size(), 0);
}

TEST(BestFitDecreasing, FollowsItsDefinition) {
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    const std::int64_t capacity = 1 + static_cast<std::int64_t>(random() % 60);
    std::vector<std::int32_t> lengths(random() % 80);
    for (std::int32_t& length : lengths)
      length = 1 + static_cast<std::int32_t>(random() % static_cast<unsigned>(capacity));
    const Packing packing = pack_best_fit_decreasing(lengths, capacity);
    std::vector<std::vector<std::uint32_t>> rows;
    for (std::size_t i = 0; i < packing.size(); ++i)
      rows.emplace_back(packing.row(i).begin(), packing.row(i).end());
    EXPECT_EQ(rows, reference(lengths, capacity)) << "round " << round;
  }
}

/// Lines with conversations of these numbers of tokens, all with a loss.
ConversationLengths lengths_of(const std::vector<std::vector<std::int32_t>>& lines) {
  std::vector<std::int64_t> begins{0};
  std::vector<std::int32_t> lengths;
  for (const auto& line : lines) {
    lengths.insert(lengths.end(), line.begin(), line.end());
    begins.push_back(static_cast<std::int64_t>(lengths.size()));
  }
  std::vector<std::int32_t> unlabeled(lengths.size(), 0);
  return {NpyArray(std::move(begins)), NpyArray(std::move(lengths)),
          NpyArray(std::move(unlabeled))};
}

PackingShare share(const std::vector<std::vector<std::int32_t>>& lines, PackingStrategy strategy,
                   const SequenceLayout& layout) {
  return packing_share(lengths_of(lines), strategy, layout);
}

TEST(ConversationPacking, CountsPaddingAndTruncatedTokens) {
  // Lines of 6, 4 and 25 tokens in sequences of 10.
  const std::vector<std::vector<std::int32_t>> lines{{4, 2}, {4}, {0, 25}};
  const PackingShare line = share(lines, PackingStrategy::line, {.sequence_length = 10});
  EXPECT_EQ(line.documents, 3);
  EXPECT_EQ(line.sequences, 3);
  EXPECT_EQ(line.tokens, 6 + 4 + 10);
  EXPECT_EQ(line.padding, 4 + 6);
  EXPECT_EQ(line.truncated, 15);
  const PackingShare bfd = share(lines, PackingStrategy::bfd, {.sequence_length = 10});
  EXPECT_EQ(bfd.sequences, 2);  // 10 and 4 + 4 + 2
  EXPECT_EQ(bfd.padding, 0);
  EXPECT_EQ(bfd.truncated, 15);
  const PackingShare split = share(lines, PackingStrategy::bfd_split, {.sequence_length = 10});
  EXPECT_EQ(split.sequences, 4);  // 10, 10, 5 + 4, 4 + 2
  EXPECT_EQ(split.padding, 1 + 4);
  EXPECT_EQ(split.truncated, 0);
}

TEST(ConversationPacking, FillsConversationsUpToAMultiple) {
  // Each conversation of 3 tokens takes 4 positions, as on two ranks of context parallelism.
  const std::vector<std::vector<std::int32_t>> lines{{3, 3, 3}, {3}};
  const SequenceLayout layout{.sequence_length = 8, .row_multiple = 4};
  const PackingShare line = share(lines, PackingStrategy::line, layout);
  EXPECT_EQ(line.truncated, 3);
  EXPECT_EQ(line.padding, 2 + 5);
  const PackingShare bfd = share(lines, PackingStrategy::bfd, layout);
  EXPECT_EQ(bfd.sequences, 2);
  EXPECT_EQ(bfd.truncated, 0);
  EXPECT_EQ(bfd.padding, 4);
  // Three of them fill a sequence of 12, where four would fit without filling up.
  EXPECT_EQ(
      share(lines, PackingStrategy::bfd, {.sequence_length = 12, .row_multiple = 4}).sequences, 2);
}

TEST(ConversationPacking, DividesLongConversations) {
  const PackedConversations packed =
      pack_conversations(lengths_of({{7}}), PackingStrategy::bfd_split, {.sequence_length = 3});
  ASSERT_EQ(packed.pieces.size(), 3);
  EXPECT_EQ(packed.pieces[2].begin, 6);
  EXPECT_EQ(packed.pieces[2].tokens, 1);
  EXPECT_EQ(packed.pieces[2].whole_tokens, 7);
}

}  // namespace
}  // namespace megatron
