#include "megatron/datasets/packed_gpt_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "datasets/corpus.h"
#include "megatron/datasets/indexed_dataset.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kPad = 99;

class PackedGptDatasetTest : public ::testing::Test {
 protected:
  /// Writes documents of one sequence each. Token t of document d is 100 (d + 1) + t.
  void write(const std::vector<std::int32_t>& lengths) {
    std::vector<std::vector<std::int32_t>> documents;
    for (const std::int32_t length : lengths) {
      const auto first = 100 * (static_cast<std::int32_t>(documents.size()) + 1);
      documents.emplace_back(static_cast<std::size_t>(length));
      std::iota(documents.back().begin(), documents.back().end(), first);
    }
    test::write_corpus(folder_ / "a", documents);
    num_documents_ = static_cast<std::int64_t>(lengths.size());
  }

  PackedGptDataset make(std::optional<std::int64_t> num_samples = {},
                        PackingStrategy strategy = PackingStrategy::bfd_split) {
    return PackedGptDataset(std::make_shared<const IndexedDataset>(folder_ / "a"),
                            {folder_ / "a", 0, num_documents_, num_samples, Split::train}, options_,
                            strategy, warnings_);
  }

  TemporaryFolder folder_;
  std::int64_t num_documents_ = 0;
  GptDatasetOptions options_{.sequence_length = 6,
                             .split_text = "1,0,0",
                             .split_matrix = parse_split("1,0,0"),
                             .eod = 0,
                             .pad = kPad};
  std::vector<std::string> warnings_;
};

/// Returns the first ids of all samples, in order.
std::vector<std::int64_t> first_ids(const Dataset& dataset) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < dataset.size(); ++i) ids.push_back(dataset.text(i)[0]);
  return ids;
}

TEST_F(PackedGptDatasetTest, PacksWholeDocuments) {
  write({3, 0, 2, 1});  // the last one has nothing to predict
  const PackedGptDataset dataset = make();
  ASSERT_EQ(dataset.size(), 1);
  EXPECT_THAT(dataset.text(0), ElementsAre(100, 101, 102, 300, 301, kPad, kPad));
  const Sample sample = dataset.sample(0);
  EXPECT_THAT(sample.get("tokens"), ElementsAre(100, 101, 102, 300, 301, 0));
  EXPECT_THAT(sample.get("labels"), ElementsAre(101, 102, 300, 301, 0, 0));
  EXPECT_THAT(sample.get<float>("loss_mask"), ElementsAre(1, 1, 0, 1, 0, 0));
  EXPECT_THAT(sample.get("position_ids"), ElementsAre(0, 1, 2, 0, 1, 2));
  EXPECT_THAT(sample.document_starts, ElementsAre(0, 3));
  EXPECT_THAT(sample.padding, ElementsAre(5));
}

TEST_F(PackedGptDatasetTest, DividesLongDocumentsAndKeepsTheLabelAtTheCut) {
  write({8, 3});
  const PackedGptDataset dataset = make();
  ASSERT_EQ(dataset.size(), 2);
  const std::int64_t whole = dataset.text(0)[0] == 100 ? 0 : 1;
  EXPECT_THAT(dataset.text(whole), ElementsAre(100, 101, 102, 103, 104, 105, 106));
  EXPECT_THAT(dataset.sample(whole).get<float>("loss_mask"), ElementsAre(1, 1, 1, 1, 1, 1));
  EXPECT_TRUE(dataset.sample(whole).padding.empty());
  const Sample rest = dataset.sample(1 - whole);
  EXPECT_THAT(rest.get("tokens"), ElementsAre(106, 107, 200, 201, 202, 0));
  EXPECT_THAT(rest.get<float>("loss_mask"), ElementsAre(1, 0, 1, 1, 0, 0));
  EXPECT_THAT(rest.get("position_ids"), ElementsAre(0, 1, 0, 1, 2, 3));
  EXPECT_THAT(rest.document_starts, ElementsAre(0, 2));

  const std::vector<CorpusShare> shares = dataset.shares(4);
  ASSERT_EQ(shares.size(), 1);
  EXPECT_EQ(shares[0].tokens, 11);
  EXPECT_EQ(shares[0].epochs, 2);
  EXPECT_EQ(shares[0].packings[0].strategy, "bfd_split");
  EXPECT_EQ(shares[0].packings[0].padding, 1);
  EXPECT_EQ(shares[0].packings[0].truncated, 0);

  const PackedGptDataset cut = make({}, PackingStrategy::bfd);
  ASSERT_EQ(cut.size(), 2);
  EXPECT_EQ(cut.shares(2)[0].packings[0].truncated, 1);  // of eight, six and a label are seen
  EXPECT_EQ(cut.shares(2)[0].packings[0].padding, 3);
}

TEST_F(PackedGptDatasetTest, EverySequenceHasSomethingToPredict) {
  write({7, 13, 1, 1, 1, 6});
  const PackedGptDataset dataset = make();
  ASSERT_EQ(dataset.size(), 4);
  for (std::int64_t i = 0; i < dataset.size(); ++i)
    EXPECT_THAT(dataset.sample(i).get<float>("loss_mask"), testing::Contains(1));
  const PackingShare packing = dataset.shares(4)[0].packings[0];
  EXPECT_EQ(packing.tokens, 6 + 12 + 6);
  EXPECT_EQ(packing.truncated, 0);
  EXPECT_EQ(dataset.shares(4)[0].tokens, 7 + 13 + 3 + 6);
  EXPECT_EQ(make({}, PackingStrategy::bfd).shares(3)[0].packings[0].truncated, 6);
}

/// Each token but the first ones of documents is a label exactly once in an epoch, and follows its
/// own predecessor.
TEST_F(PackedGptDatasetTest, LearnsEveryTokenOnce) {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::int32_t> lengths(30);
    for (std::int32_t& length : lengths) length = static_cast<std::int32_t>(random() % 20);
    write(lengths);
    const PackedGptDataset dataset = make();
    std::multiset<std::int64_t> labels, expected;
    for (std::int64_t i = 0; i < dataset.size(); ++i) {
      const Sample sample = dataset.sample(i);
      for (std::size_t at = 0; at < sample.get("labels").size(); ++at) {
        if (sample.get<float>("loss_mask")[at] == 0) continue;
        EXPECT_EQ(sample.get("labels")[at], sample.get("tokens")[at] + 1);
        labels.insert(sample.get("labels")[at]);
      }
    }
    for (std::size_t d = 0; d < lengths.size(); ++d)
      for (std::int32_t t = 1; t < lengths[d]; ++t)
        expected.insert(100 * (static_cast<std::int64_t>(d) + 1) + t);
    EXPECT_EQ(labels, expected);
  }
}

TEST_F(PackedGptDatasetTest, ShufflesEachEpochAndALongerRunBeginsAsAShorterOne) {
  write(std::vector<std::int32_t>(40, 5));
  const std::vector<std::int64_t> two = first_ids(make(80)), some = first_ids(make(50));
  EXPECT_TRUE(std::equal(some.begin(), some.end(), two.begin()));
  std::vector<std::int64_t> first(two.begin(), two.begin() + 40),
      second(two.begin() + 40, two.end());
  EXPECT_NE(first, second);
  EXPECT_FALSE(std::ranges::is_sorted(first));
  std::ranges::sort(first);
  std::ranges::sort(second);
  EXPECT_EQ(first, second);
  options_.seed = 4321;
  EXPECT_NE(first_ids(make(80)), two);
}

TEST_F(PackedGptDatasetTest, ReadsItsCacheAndNoticesThatDataChanged) {
  options_.cache_folder = (folder_ / "cache").string();
  write({3, 4, 2, 7});
  const std::vector<std::int64_t> built = first_ids(make(9));
  EXPECT_EQ(first_ids(make(9)), built);
  EXPECT_THAT(warnings_, IsEmpty());
  const auto num_arrays = [&] {
    return std::ranges::count_if(fs::directory_iterator(folder_ / "cache"), [](const auto& file) {
      return file.path().extension() == ".npy";
    });
  };
  EXPECT_EQ(num_arrays(), 4);
  make(20);
  EXPECT_EQ(num_arrays(), 5) << "only the order is another one";
  options_.defer_index = true;
  EXPECT_EQ(make().size(), 3);
  EXPECT_EQ(num_arrays(), 5) << "counting needs no order";
  options_.defer_index = false;
  write({6, 6});
  EXPECT_EQ(make(9).shares(9)[0].documents, 2);
  ASSERT_EQ(warnings_.size(), 2);
  EXPECT_THAT(warnings_[0], HasSubstr("is built again"));
}

TEST_F(PackedGptDatasetTest, RefusesMoreSamplesThanAnOrderCanHold) {
  write({6, 6});
  EXPECT_THAT(message_of([&] { make(std::int64_t{1} << 40); }),
              HasSubstr("1099511627776 samples would repeat the train split 549755813888 times"));
}

TEST_F(PackedGptDatasetTest, SequencesMayBeVeryLong) {
  write({6, 6});
  options_.sequence_length = std::int64_t{1} << 30;
  EXPECT_EQ(make().size(), 1);
}

TEST_F(PackedGptDatasetTest, NeedsTokens) {
  write({0, 0});
  EXPECT_THAT(message_of([&] { make(3); }), HasSubstr("the train split has no tokens, but 3"));
}

}  // namespace
}  // namespace megatron
