// The expected orders were printed by megatron-core 0.15.
#include "megatron/datasets/blended_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/corpus.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/blend.h"
#include "megatron/datasets/builder.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

Pairs pairs(const BlendIndex& index) {
  Pairs result;
  for (std::int64_t i = 0; i < index.dataset_index.size(); ++i)
    result.emplace_back(index.dataset_index.at(i), index.dataset_sample_index.at(i));
  return result;
}

TEST(BlendIndex, FollowsTheLargestLag) {
  EXPECT_EQ(
      pairs(build_blend_index({.3, .7}, 10)),
      (Pairs{{1, 0}, {0, 0}, {1, 1}, {1, 2}, {0, 1}, {1, 3}, {1, 4}, {0, 2}, {1, 5}, {1, 6}}));
  EXPECT_EQ(pairs(build_blend_index({.5, .5}, 6)),
            (Pairs{{0, 0}, {1, 0}, {0, 1}, {1, 1}, {0, 2}, {1, 2}}));
  EXPECT_EQ(pairs(build_blend_index({.001, .999}, 6)),
            (Pairs{{1, 0}, {0, 0}, {1, 1}, {1, 2}, {1, 3}, {1, 4}}));
}

TEST(BlendIndex, ExhaustsEveryDataset) {
  EXPECT_EQ(pairs(build_exhaustive_blend_index({3, 1, 4})),
            (Pairs{{2, 0}, {0, 0}, {1, 0}, {2, 1}, {0, 1}, {2, 2}, {0, 2}, {2, 3}}));
}

TEST(ParseBlend, ReadsPrefixesAndWeights) {
  EXPECT_THAT(parse_blend({"a", "b"}, "--data-path").prefixes, ElementsAre("a", "b"));
  EXPECT_FALSE(parse_blend({"a", "b"}, "--data-path").weights);
  const Blend blend = parse_blend({"0.3", "a", "7e-1", "b"}, "--data-path");
  EXPECT_THAT(blend.prefixes, ElementsAre("a", "b"));
  EXPECT_THAT(*blend.weights, ElementsAre(0.3, 0.7));
  EXPECT_TRUE(parse_blend({"1", "a"}, "--data-path").weights);
  EXPECT_THAT(parse_blend({"10_737_418_240", "a", "+1e10", "b"}, "--data-path").weights.value(),
              ElementsAre(10737418240.0, 1e10));
}

TEST(ParseBlend, RefusesNonsense) {
  using List = std::vector<std::string>;
  for (const List& list : {List{}, List{"0.3", "a", "b"}, List{"0.3", "a", "b", "c"},
                           List{"0", "a"}, List{"-1", "a"}, List{"nan", "a"}, List{"inf", "a"}}) {
    EXPECT_NE(message_of([&] { parse_blend(list, "--data-path"); }).find("--data-path"),
              std::string::npos);
  }
}

class BuilderTest : public ::testing::Test {
 protected:
  BuilderTest() {
    test::write_corpus(folder_ / "a", test::small_corpus());
    test::write_corpus(folder_ / "b",
                       std::vector<std::vector<std::int32_t>>(30, {1, 2, 3, 4, 5, 6, 7}));
    config_.data_cache_path = folder_ / "cache";
    request_ = {.sequence_length = 8,
                .seed = 1234,
                .num_samples = {20, 4, 0},
                .tokenizer = {.vocab_size = 100, .eod = 0}};
  }
  std::string error() {
    return message_of([&] { build_datasets(config_, request_); });
  }

  TemporaryFolder folder_;
  DataConfig config_;
  DatasetRequest request_;
};

TEST_F(BuilderTest, BuildsPlainSplits) {
  config_.data_path = {folder_ / "a"};
  config_.split = "80,20";
  const Datasets datasets = build_datasets(config_, request_);
  EXPECT_GE(datasets.train()->size(), 20);
  EXPECT_GE(datasets.valid()->size(), 4);
  EXPECT_EQ(datasets.test(), nullptr);
}

TEST_F(BuilderTest, BlendsByWeightAndBySize) {
  config_.data_path = {"0.3", folder_ / "a", "0.7", folder_ / "b"};
  config_.split = "80,20";
  EXPECT_EQ(build_datasets(config_, request_).train()->size(), 20);
  config_.data_path = {folder_ / "a", folder_ / "b"};
  request_.num_samples = {std::nullopt, 3, 0};
  const Datasets datasets = build_datasets(config_, request_);
  EXPECT_EQ(datasets.valid()->size(), 3);
  EXPECT_GT(datasets.train()->size(), 20);
  EXPECT_NE(datasets.train()->describe(0).find("of the blend"), std::string::npos);
}

TEST_F(BuilderTest, TakesOneDatasetPerSplit) {
  config_.train_data_path = {"0.5", folder_ / "a"};
  config_.valid_data_path = {folder_ / "b"};
  const Datasets datasets = build_datasets(config_, request_);
  EXPECT_NE(datasets.valid()->describe(0).find("/b, valid"), std::string::npos);
  EXPECT_NE(message_of([&] { datasets.require(Split::test); }).find("test split has no data"),
            std::string::npos);
}

TEST_F(BuilderTest, ReadsArgumentFiles) {
  test::write_text_file(folder_ / "args.txt", "0.5 " + (folder_ / "a").string() + "\n 0.5 " +
                                                  (folder_ / "b").string() + "\n");
  config_.data_args_path = folder_ / "args.txt";
  EXPECT_EQ(build_datasets(config_, request_).train()->size(), 20);
  config_.data_args_path.clear();
  test::write_text_file(folder_ / "args.json",
                        R"({"train": [")" + (folder_ / "a").string() + R"("], "valid": "1 )" +
                            (folder_ / "b").string() + R"(", "test": null})");
  config_.per_split_data_args_path = folder_ / "args.json";
  EXPECT_GE(build_datasets(config_, request_).valid()->size(), 4);
  test::write_text_file(folder_ / "args.json", R"({"train": 5})");
  EXPECT_NE(error().find("'train'"), std::string::npos);
}

TEST_F(BuilderTest, ExplainsMistakes) {
  EXPECT_NE(error().find("no data was given"), std::string::npos);
  config_.data_path = {folder_ / "nowhere"};
  EXPECT_NE(error().find("nowhere.idx"), std::string::npos);
  config_.mock_data = true;
  EXPECT_NE(error().find("2 ways"), std::string::npos);
  config_.mock_data = false;
  config_.data_path = {folder_ / "a"};
  request_.num_samples = {20, 4, 4};
  config_.split = "100,0,0";
  EXPECT_EQ(build_datasets(config_, request_).valid(), nullptr);
  config_.split = "99,1,0.1";
  EXPECT_NE(error().find("split has no tokens"), std::string::npos);
  config_.split = "80,10,10";
  request_.num_samples = {-1, 0, 0};
  EXPECT_NE(error().find("must not be negative"), std::string::npos);
  request_ = {.sequence_length = 0, .num_samples = {1, 1, 1}};
  EXPECT_NE(error().find("--seq-length"), std::string::npos);
  request_ = {.sequence_length = 8, .seed = -3, .num_samples = {1, 1, 1}};
  EXPECT_NE(error().find("--seed"), std::string::npos);
}

TEST_F(BuilderTest, NamesTheFileThatIsMissingInTheMiddleOfABlend) {
  for (const char* name : {"c.idx", "c.bin"}) {
    test::write_corpus(folder_ / "c", test::small_corpus());
    config_.data_path = {"1", folder_ / "a", "1", folder_ / "c", "1", folder_ / "b"};
    EXPECT_GE(build_datasets(config_, request_).require(Split::train).size(), 20);
    fs::remove(folder_ / name);
    EXPECT_NE(error().find(name), std::string::npos) << error();
  }
}

TEST_F(BuilderTest, SaysOnceThatNothingIsCached) {
  test::write_text_file(folder_ / "file", "");
  config_.data_cache_path = folder_ / "file";
  config_.data_path = {"1", folder_ / "a", "2", folder_ / "b"};
  EXPECT_EQ(build_datasets(config_, request_).warnings.size(), 1u);
}

TEST_F(BuilderTest, BuildsMockData) {
  config_.mock_data = true;
  request_.sequence_length = 1024;
  const Datasets datasets = build_datasets(config_, request_);
  EXPECT_EQ(datasets.train()->text(0).size(), 1025u);
  EXPECT_NE(datasets.test(), nullptr);
}

TEST_F(BuilderTest, OrdersMockDataAlikeWithAndWithoutACache) {
  config_.mock_data = true;
  request_.sequence_length = 512;
  request_.num_samples = {200000, 4, 4};  // several epochs
  const Datasets late = build_datasets(config_, request_);
  config_.data_cache_path = folder_ / "cache";
  const Datasets cached = build_datasets(config_, request_);
  for (const auto& [one, other] :
       {std::pair(late.train(), cached.train()), std::pair(late.valid(), cached.valid())}) {
    ASSERT_EQ(one->size(), other->size());
    for (const std::int64_t sample : {std::int64_t{0}, std::int64_t{77}, one->size() - 1})
      EXPECT_EQ(one->text(sample), other->text(sample));
  }
  EXPECT_FALSE(fs::is_empty(folder_ / "cache")) << "ranks that name one cache build the order once";
  EXPECT_EQ(cached.train()->text(5), build_datasets(config_, request_).train()->text(5));
}

TEST_F(BuilderTest, SaysThatMockDataIsDividedAsInMegatron) {
  config_.mock_data = true;
  config_.split = "98,1,1";
  const Datasets datasets = build_datasets(config_, request_);
  ASSERT_EQ(datasets.warnings.size(), 1u);
  EXPECT_NE(
      datasets.warnings[0].find("--split 98,1,1 has no effect: mock data are always divided 1,1,1"),
      std::string::npos);
  config_.split = "1,1,1";
  EXPECT_TRUE(build_datasets(config_, request_).warnings.empty());
}

TEST_F(BuilderTest, SaysWhatSamplesTakeFromEachCorpus) {
  test::write_corpus(folder_ / "x", std::vector<std::vector<std::int32_t>>(
                                        10, std::vector<std::int32_t>(10, 1)));  // 100 tokens
  test::write_corpus(folder_ / "y", std::vector<std::vector<std::int32_t>>(
                                        10, std::vector<std::int32_t>(40, 1)));  // 400
  config_.data_path = {"3", folder_ / "x", "1", folder_ / "y"};
  config_.split = "100,0,0";
  request_.sequence_length = 5;
  request_.num_samples = {80, 0, 0};
  const std::vector<CorpusShare> shares = build_datasets(config_, request_).train()->shares(80);
  ASSERT_EQ(shares.size(), 2u);
  EXPECT_EQ(shares[0].name, folder_ / "x");
  EXPECT_DOUBLE_EQ(shares[0].weight, 0.75);
  EXPECT_EQ(shares[0].tokens, 100);
  EXPECT_EQ(shares[0].samples, 60);
  EXPECT_DOUBLE_EQ(shares[0].epochs, 60 * 5 / 100.0);
  EXPECT_EQ(shares[1].samples, 20);
  EXPECT_DOUBLE_EQ(shares[1].epochs, 20 * 5 / 400.0);
  // Not rounded: the first sample comes from x, the second from the other, which then lags more.
  const std::vector<CorpusShare> two = build_datasets(config_, request_).train()->shares(2);
  EXPECT_EQ(two[0].samples, 1);
  EXPECT_EQ(two[1].samples, 1);
}

TEST_F(BuilderTest, IgnoresAPadThatIsTheEndOfDocument) {
  test::write_corpus(folder_ / "z",
                     std::vector<std::vector<std::int32_t>>(30, {1, 2, 3, 0, 5, 6, 7}));
  config_.data_path = {folder_ / "z"};
  config_.split = "100";
  request_.num_samples = {5, 0, 0};
  request_.tokenizer.pad = 0;
  const auto zeros = [&] {
    const Sample sample = build_datasets(config_, request_).train()->sample(0);
    return std::ranges::count(sample.get<float>("loss_mask"), 0.0f);
  };
  EXPECT_EQ(zeros(), 0);
  config_.allow_ambiguous_pad_tokens = true;
  EXPECT_GT(zeros(), 0);
}

}  // namespace
}  // namespace megatron
