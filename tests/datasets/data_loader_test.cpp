// The expected cyclic orders were printed by Megatron's sampler arithmetic over torch.randperm.
#include "megatron/datasets/data_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/corpus.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using Ids = std::vector<std::int64_t>;
using Rows = std::vector<std::vector<std::int64_t>>;

/// Sample i has the three tokens 10·i, 10·i + 1 and 10·i + 2; sample `broken` throws.
class CountingDataset : public Dataset {
 public:
  explicit CountingDataset(std::int64_t size, std::int64_t broken = -1)
      : size_(size), broken_(broken) {}
  std::int64_t size() const override { return size_; }
  Sample sample(std::int64_t index) const override {
    if (index == broken_) throw UserError("sample is broken");
    const std::int64_t first = 10 * index;
    return sample_of({first, first + 1, first + 2}, {first + 1, first + 2, first + 3});
  }
  const SampleFields& fields() const override { return fields_; }
  std::string describe(std::int64_t index) const override {
    return "counting sample " + std::to_string(index);
  }
  std::vector<CorpusShare> shares(std::int64_t /*samples*/) const override { return {}; }

 protected:
  Sample sample_of(Ids tokens, Ids labels) const {
    return {
        {fields_, std::move(tokens), std::move(labels), Ids{0, 1, 2}, std::vector<float>{1, 1, 1}},
        {0, 2},
        {}};
  }

 private:
  std::int64_t size_, broken_;
  SampleFields fields_ = std::make_shared<const std::vector<SampleField>>(causal_fields(3));
};

Rows draw(SamplerOptions options, int count) {
  Sampler sampler(options);
  Rows rows;
  for (int i = 0; i < count; ++i) {
    const auto batch = sampler.next();
    if (!batch) break;
    rows.push_back(batch->samples);
  }
  return rows;
}

TEST(Sampler, GoesOnceThroughInOrder) {
  EXPECT_EQ(draw({.total_samples = 13,
                  .consumed_samples = 4,
                  .micro_batch_size = 2,
                  .data_parallel_rank = 1,
                  .data_parallel_size = 2},
                 9),
            (Rows{{6, 7}, {10, 11}}));
  EXPECT_EQ(draw({.total_samples = 4, .consumed_samples = 4, .micro_batch_size = 2}, 9), Rows{});
  EXPECT_EQ(draw({.total_samples = 4, .micro_batch_size = 2}, 9), (Rows{{0, 1}, {2, 3}}));
}

TEST(Sampler, RepeatsFromTheFirstSample) {
  EXPECT_EQ(draw({.repeats = true,
                  .total_samples = 13,
                  .consumed_samples = 20,
                  .micro_batch_size = 2,
                  .data_parallel_rank = 1,
                  .data_parallel_size = 2},
                 3),
            (Rows{{10, 11}, {2, 3}, {6, 7}}));
}

TEST(Sampler, CyclesAsMegatron) {
  SamplerOptions options{.kind = SamplerKind::cyclic,
                         .total_samples = 13,
                         .consumed_samples = 4,
                         .micro_batch_size = 2,
                         .data_parallel_rank = 1,
                         .data_parallel_size = 2};
  const Rows sharded = {{9, 6}, {7, 10}, {7, 11}, {8, 6}, {9, 10}};
  EXPECT_EQ(draw(options, 5), sharded);
  options.data_sharding = false;
  const Rows shared = {{4, 10}, {1, 6}, {4, 8}, {0, 3}, {9, 7}};
  EXPECT_EQ(draw(options, 5), shared);
  const Rows alone = {{4, 1}, {7, 5}, {3, 9}, {0, 8}, {6, 2}, {5, 6}};
  EXPECT_EQ(draw({.kind = SamplerKind::cyclic, .total_samples = 10, .micro_batch_size = 2}, 6),
            alone);
}

TEST(Sampler, KnowsTheCyclicOrderOfAllRanks) {
  const std::vector<std::int64_t> two_ranks = {3, 2, 7, 6, 1, 3, 5, 7, 2, 0, 6, 4, 0, 1};
  Sampler sampler({.kind = SamplerKind::cyclic,
                   .total_samples = 11,
                   .micro_batch_size = 2,
                   .data_parallel_size = 2});
  for (const std::int64_t i : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 1})
    EXPECT_EQ(sampler.cyclic_sample(4 + i), two_ranks[static_cast<std::size_t>(i)]) << i;
}

TEST(Sampler, OrdinalsCountEverySampleOnce) {
  for (const bool sharding : {true, false}) {
    for (const SamplerKind kind : {SamplerKind::single, SamplerKind::cyclic}) {
      std::vector<std::int64_t> ordinals;
      for (std::int64_t rank = 0; rank < 3; ++rank) {
        Sampler sampler({.kind = kind,
                         .total_samples = 100,
                         .consumed_samples = 12,
                         .micro_batch_size = 2,
                         .data_parallel_rank = rank,
                         .data_parallel_size = 3,
                         .data_sharding = sharding});
        for (int i = 0; i < 2; ++i) {
          const auto batch = *sampler.next();
          ordinals.insert(ordinals.end(), batch.ordinals.begin(), batch.ordinals.end());
        }
      }
      std::sort(ordinals.begin(), ordinals.end());
      EXPECT_THAT(ordinals, ElementsAre(12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23));
    }
  }
}

TEST(Sampler, RefusesWhatCannotWork) {
  EXPECT_NE(message_of([] {
              Sampler({.total_samples = 3, .micro_batch_size = 4});
            }).find("fewer than one batch"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              Sampler({.total_samples = 8, .consumed_samples = 9});
            }).find("consumed already"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              Sampler({.kind = SamplerKind::cyclic,
                       .total_samples = 8,
                       .consumed_samples = 3,
                       .micro_batch_size = 2});
            }).find("cyclic"),
            std::string::npos);
}

class LoaderTest : public ::testing::TestWithParam<int> {};

TEST_P(LoaderTest, MakesBatchesInOrder) {
  DataLoader loader(std::make_shared<CountingDataset>(1000),
                    {.sampler = {.consumed_samples = 4, .micro_batch_size = 2},
                     .num_workers = GetParam(),
                     .vocab_size = 20000});
  for (std::int64_t i = 2; i < 500; ++i) {
    const auto batch = loader.next();
    ASSERT_TRUE(batch);
    ASSERT_THAT(batch->indices.samples, ElementsAre(2 * i, 2 * i + 1));
    ASSERT_THAT(batch->get("tokens"),
                ElementsAre(20 * i, 20 * i + 1, 20 * i + 2, 20 * i + 10, 20 * i + 11, 20 * i + 12));
  }
  EXPECT_FALSE(loader.next());
}

TEST_P(LoaderTest, PassesErrorsOnInOrder) {
  DataLoader loader(std::make_shared<CountingDataset>(1000, 6),
                    {.sampler = {.micro_batch_size = 2}, .num_workers = GetParam()});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(loader.next());
  EXPECT_EQ(message_of([&] { loader.next(); }), "sample is broken");
}

TEST_P(LoaderTest, ChecksIdsAgainstTheVocabulary) {
  DataLoader loader(
      std::make_shared<CountingDataset>(1000),
      {.sampler = {.micro_batch_size = 1}, .num_workers = GetParam(), .vocab_size = 22});
  EXPECT_TRUE(loader.next());
  EXPECT_TRUE(loader.next());
  const std::string error = message_of([&] { loader.next(); });
  EXPECT_NE(
      error.find(
          "counting sample 2: token id 22 at position 2 is outside the model's vocabulary of 22"),
      std::string::npos)
      << error;
}

/// Sample 0 has a label that is none of its tokens.
class LabelledDataset : public CountingDataset {
 public:
  LabelledDataset() : CountingDataset(1) {}
  Sample sample(std::int64_t) const override { return sample_of({0, 1, 2}, {1, 2, 22}); }
};

TEST_P(LoaderTest, ChecksLabelsAgainstTheVocabulary) {
  DataLoader loader(
      std::make_shared<LabelledDataset>(),
      {.sampler = {.micro_batch_size = 1}, .num_workers = GetParam(), .vocab_size = 22});
  const std::string error = message_of([&] { loader.next(); });
  EXPECT_NE(error.find("counting sample 0: token id 22 at position 2"), std::string::npos) << error;
}

TEST_P(LoaderTest, StopsWhenAbandoned) {
  DataLoader loader(std::make_shared<CountingDataset>(1000000),
                    {.sampler = {.micro_batch_size = 1}, .num_workers = GetParam()});
  EXPECT_TRUE(loader.next());
}

INSTANTIATE_TEST_SUITE_P(Workers, LoaderTest, ::testing::Values(0, 1, 3));

TEST(DocumentIds, NumberTheDocumentsOfARow) {
  const Batch batch = make_batch(CountingDataset(3), {{0, 1}, {0, 1}}, 0);
  EXPECT_THAT(document_ids(batch), ElementsAre(0, 0, 1, 0, 0, 1));
  EXPECT_EQ(batch.documents[0][0].num_tokens, 2);
}

}  // namespace
}  // namespace megatron
