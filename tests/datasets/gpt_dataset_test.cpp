// The expected indices and samples were printed by megatron-core 0.15 for the same corpus.
#include "megatron/datasets/gpt_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "datasets/corpus.h"
#include "megatron/datasets/gpt_index.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/mock_source.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::int64_t> slice(const NpyArray& array, std::int64_t begin, std::int64_t count) {
  if (begin < 0) begin += array.size();
  std::vector<std::int64_t> values;
  for (std::int64_t i = begin; i < begin + count; ++i) values.push_back(array.at(i));
  return values;
}

/// The small corpus at sequence length 8, seed 1234, --split 80,15,5.
class GptDatasetTest : public ::testing::Test {
 protected:
  GptDatasetTest() { test::write_corpus(folder_ / "a", test::small_corpus()); }

  GptDataset make(Split split, std::optional<std::int64_t> num_samples) {
    const auto source = std::make_shared<const IndexedDataset>(folder_ / "a");
    const auto [begin, end] =
        split_range(*(*options_.split_matrix)[static_cast<std::size_t>(split)], 40);
    return GptDataset(source, {folder_ / "a", begin, end, num_samples, split}, options_, warnings_);
  }

  /// Without its stamp a cache is one of megatron-core, whose contents are not compared.
  void remove_stamp() {
    for (const auto& file : fs::directory_iterator(folder_ / "cache"))
      if (file.path().string().ends_with("stamp.json")) {
        fs::remove(file.path());
        return;
      }
  }

  TemporaryFolder folder_;
  GptDatasetOptions options_{.sequence_length = 8,
                             .seed = 1234,
                             .split_text = "80,15,5",
                             .split_matrix = parse_split("80,15,5"),
                             .eod = 0};
  std::vector<std::string> warnings_;
};

TEST_F(GptDatasetTest, OrdersTrainingAsMegatronCore) {
  const GptDataset train = make(Split::train, 100);
  EXPECT_EQ(train.size(), 108);
  EXPECT_THAT(slice(train.index().document_index, 0, 12),
              ElementsAre(8, 14, 28, 26, 31, 29, 3, 17, 27, 22, 1, 15));
  EXPECT_THAT(slice(train.index().document_index, -5, 5), ElementsAre(1, 30, 18, 9, 20));
  EXPECT_THAT(slice(train.index().sample_index, 0, 12),
              ElementsAre(0, 0, 0, 8, 2, 1, 4, 3, 4, 11, 5, 6));
  EXPECT_THAT(slice(train.index().shuffle_index, 0, 8), ElementsAre(5, 68, 29, 6, 50, 31, 54, 13));
  EXPECT_THAT(slice(train.index().shuffle_index, -4, 4), ElementsAre(90, 102, 97, 106));
  EXPECT_THAT(train.sample(0).get("tokens"), ElementsAre(10, 11, 12, 13, 22, 23, 24, 25));
  EXPECT_THAT(train.sample(107).get("labels"), ElementsAre(36, 37, 38, 39, 14, 15, 16, 17));
}

TEST_F(GptDatasetTest, OrdersOneEpochAndManyTinyDocuments) {
  const GptDataset valid = make(Split::valid, 5);
  EXPECT_THAT(slice(valid.index().shuffle_index, 0, 6), ElementsAre(0, 4, 3, 2, 5, 1));
  EXPECT_THAT(valid.sample(0).get("tokens"), ElementsAre(39, 40, 41, 42, 43, 44, 45, 46));
  const GptDataset test = make(Split::test, 3);
  EXPECT_EQ(test.size(), 3);
  EXPECT_THAT(slice(test.index().document_index, 0, 12),
              ElementsAre(39, 39, 39, 38, 39, 38, 38, 38, 38, 39, 39, 39));
  EXPECT_THAT(test.sample(0).get("tokens"), ElementsAre(17, 18, 17, 18, 17, 18, 24, 24));
  EXPECT_THAT(test.sample(2).get("labels"), ElementsAre(17, 18, 17, 18, 17, 18, 24, 17));
}

TEST_F(GptDatasetTest, PadsTheLastValidationSample) {
  options_.drop_last_partial_validation_sequence = false;
  options_.pad = 0;
  const GptDataset valid = make(Split::valid, 4);
  ASSERT_EQ(valid.size(), 7);
  const Sample last = valid.sample(5);
  EXPECT_THAT(last.get("tokens"), ElementsAre(11, 12, 46, 47, 48, 49, 0, 0));
  EXPECT_THAT(last.get("labels"), ElementsAre(12, 46, 47, 48, 49, 0, 0, 0));
  EXPECT_THAT(last.get<float>("loss_mask"), ElementsAre(1, 1, 1, 1, 1, 0, 0, 0));
}

TEST_F(GptDatasetTest, RefusesAnEmptySplit) {
  options_.split_matrix = parse_split("99,0.5,0.5");
  const std::string error = message_of([&] { make(Split::test, 3); });
  EXPECT_NE(error.find("test split has no tokens, but 3 samples are requested"), std::string::npos)
      << error;
  options_.split_matrix = parse_split("1,0,0");
  test::write_corpus(folder_ / "a", std::vector<std::vector<std::int32_t>>(40));
  EXPECT_NE(message_of([&] { make(Split::train, 3); }).find("no tokens"), std::string::npos);
  EXPECT_NE(message_of([&] { make(Split::train, std::nullopt); }).find("no tokens"),
            std::string::npos);
}

TEST_F(GptDatasetTest, RefusesAbsurdRepetition) {
  options_.sequence_length = 1 << 20;
  EXPECT_NE(message_of([&] { make(Split::test, 1 << 30); }).find("would repeat"),
            std::string::npos);
}

TEST_F(GptDatasetTest, CachesUnderMegatronCoresNames) {
  options_.cache_folder = folder_ / "cache";
  const GptDataset first = make(Split::train, 100);
  int arrays = 0;
  for (const auto& file : fs::directory_iterator(folder_ / "cache"))
    arrays += file.path().string().find("-GPTDataset-train-") != std::string::npos;
  EXPECT_EQ(arrays, 6) << "three arrays, the description, the stamp and the lock";
  const auto before = fs::last_write_time(fs::directory_iterator(folder_ / "cache")->path());
  EXPECT_EQ(make(Split::train, 100).text(17), first.text(17));
  EXPECT_EQ(fs::last_write_time(fs::directory_iterator(folder_ / "cache")->path()), before);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(GptDatasetTest, CachesBesideTheDataByDefault) {
  make(Split::train, 100);
  EXPECT_FALSE(fs::is_empty(folder_ / "a/cache/GPTDataset_indices"));
}

TEST_F(GptDatasetTest, RebuildsBrokenAndOutdatedCaches) {
  options_.cache_folder = folder_ / "cache";
  const auto expected = make(Split::train, 100).text(3);
  for (const auto& file : fs::directory_iterator(folder_ / "cache")) {
    if (file.path().extension() == ".npy") fs::resize_file(file.path(), 50);
  }
  EXPECT_EQ(make(Split::train, 100).text(3), expected);
  auto corpus = test::small_corpus();
  for (auto& document : corpus) document.push_back(9);
  test::write_corpus(folder_ / "a", corpus);
  EXPECT_NE(make(Split::train, 100).text(3), expected);
}

TEST_F(GptDatasetTest, NamesACacheThatDoesNotFit) {
  options_.cache_folder = folder_ / "cache";
  const GptDataset train = make(Split::train, 100);
  remove_stamp();
  for (const auto& file : fs::directory_iterator(folder_ / "cache")) {
    if (file.path().string().ends_with("document_index.npy"))
      NpyArray(std::vector<std::int32_t>(
                   static_cast<std::size_t>(train.index().document_index.size()), 1000))
          .save(file.path());
  }
  EXPECT_NE(message_of([&] { make(Split::train, 100).text(0); }).find("does not match"),
            std::string::npos);
}

TEST_F(GptDatasetTest, RebuildsACacheOfAnotherSize) {
  options_.cache_folder = folder_ / "cache";
  const auto expected = make(Split::train, 100).text(3);
  for (const char* name : {"document_index.npy", "sample_index.npy", "shuffle_index.npy"}) {
    for (const auto& file : fs::directory_iterator(folder_ / "cache")) {
      if (file.path().string().ends_with(name))
        NpyArray(std::vector<std::int32_t>{0, 0, 0}).save(file.path());
    }
    EXPECT_EQ(make(Split::train, 100).text(3), expected) << name;
  }
}

// Files' clocks tick coarsely: an index written in the tick of its source may be of the old one.
TEST_F(GptDatasetTest, RebuildsACacheAsOldAsItsSource) {
  options_.cache_folder = folder_ / "cache";
  const auto expected = make(Split::train, 100).text(0);
  remove_stamp();
  for (const auto& file : fs::directory_iterator(folder_ / "cache")) {
    const std::string path = file.path();
    if (path.ends_with("document_index.npy"))
      NpyArray(
          std::vector<std::int32_t>(static_cast<std::size_t>(NpyArray::load(path).size()), 1000))
          .save(path);
    if (path.ends_with("description.txt"))
      fs::last_write_time(path, fs::last_write_time(folder_ / "a.idx"));
  }
  EXPECT_EQ(make(Split::train, 100).text(0), expected);
}

TEST_F(GptDatasetTest, NamesACacheThatWouldPadASample) {
  options_.cache_folder = folder_ / "cache";
  const NpyArray order = make(Split::train, 100).index().sample_index;
  std::vector<std::int32_t> values;
  for (std::int64_t i = 0; i < order.size(); ++i)
    values.push_back(static_cast<std::int32_t>(order.at(i)));
  ASSERT_EQ(values[3], 8);  // the first sample ends and the second begins here
  values[3] = 7;
  remove_stamp();
  for (const auto& file : fs::directory_iterator(folder_ / "cache")) {
    if (file.path().string().ends_with("sample_index.npy")) NpyArray(values, 2).save(file.path());
  }
  const GptDataset train = make(Split::train, 100);
  int refused = 0;
  for (std::int64_t i = 0; i < train.size(); ++i)
    refused += message_of([&] { train.text(i); }) != "no error";
  EXPECT_EQ(refused, 2);
}

// megatron-core rounds the number of validation samples in single precision, so a large split may
// have several more samples than its tokens fill.
TEST_F(GptDatasetTest, PadsSamplesBeyondTheLastToken) {
  options_.cache_folder = folder_ / "cache";
  options_.drop_last_partial_validation_sequence = false;
  std::vector<std::int32_t> starts;
  std::vector<std::uint32_t> shuffle;
  {
    const GptDataset valid = make(Split::valid, std::nullopt);
    const GptIndex& order = valid.index();
    for (std::int64_t i = 0; i < order.sample_index.size(); ++i)
      starts.push_back(static_cast<std::int32_t>(order.sample_index.at(i)));
    for (std::int64_t i = 0; i < order.shuffle_index.size(); ++i)
      shuffle.push_back(static_cast<std::uint32_t>(order.shuffle_index.at(i)));
  }
  const auto size = static_cast<std::int64_t>(shuffle.size());
  remove_stamp();
  for (int surplus = 0; surplus < 2; ++surplus) {
    shuffle.push_back(static_cast<std::uint32_t>(shuffle.size()));
    starts.insert(starts.end(), {starts[starts.size() - 2], starts[starts.size() - 1]});
  }
  for (const auto& file : fs::directory_iterator(folder_ / "cache")) {
    const std::string path = file.path();
    if (path.ends_with("sample_index.npy")) NpyArray(starts, 2).save(path);
    if (path.ends_with("shuffle_index.npy")) NpyArray(shuffle).save(path);
  }
  const GptDataset valid = make(Split::valid, std::nullopt);
  ASSERT_EQ(valid.size(), size + 2);
  for (std::int64_t i = 0; i < size; ++i) EXPECT_NO_THROW(valid.text(i)) << i;
  for (std::int64_t i = size; i < size + 2; ++i) {
    const std::vector<std::int64_t> ids = valid.text(i);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), options_.pad), 8) << i;  // the last token is there
  }
}

TEST_F(GptDatasetTest, ChecksTheWholeIndexBeforeTheOrderIsBuilt) {
  std::string idx = test::read_text_file(folder_ / "a.idx");
  ++idx[34 + 4 * 40 + 8];  // the pointer of sequence 1
  test::write_text_file(folder_ / "a.idx", idx);
  options_.cache_folder = folder_ / "cache";
  EXPECT_NE(message_of([&] { make(Split::train, 100); }).find("pointer of sequence 1 is no"),
            std::string::npos);
}

TEST_F(GptDatasetTest, WorksWithoutAWritableFolder) {
  test::write_text_file(folder_ / "file", "");
  options_.cache_folder = folder_ / "file";
  EXPECT_EQ(make(Split::train, 100).size(), 108);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("--data-cache-path"), std::string::npos);
}

TEST_F(GptDatasetTest, BuildsOnceForManyThreads) {
  options_.cache_folder = folder_ / "cache";
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([this] {
      std::vector<std::string> warnings;
      const GptDataset train(std::make_shared<const IndexedDataset>(folder_ / "a"),
                             {folder_ / "a", 0, 32, 100, Split::train}, options_, warnings);
      EXPECT_THAT(train.sample(0).get("tokens"), ElementsAre(10, 11, 12, 13, 22, 23, 24, 25));
    });
  }
}

/// Whether the final epoch of one document is shuffled apart, at sequence length 10.
bool separates(std::int32_t tokens, std::int64_t num_samples, bool add_extra_token = true) {
  const EpochPlan plan = plan_epochs({.lengths = {reinterpret_cast<const std::byte*>(&tokens), 1},
                                      .end = 1,
                                      .num_samples = num_samples,
                                      .sequence_length = 10,
                                      .add_extra_token = add_extra_token});
  EXPECT_EQ(plan.num_epochs, 2);
  return plan.separate_final_epoch;
}

// megatron-core: apart if samples_from_final_epoch < int(0.80 * samples_per_epoch).
TEST(PlanEpochs, SeparatesAFinalEpochOfLessThanFourFifths) {
  EXPECT_TRUE(separates(101, 17)) << "7 of 10";
  EXPECT_FALSE(separates(101, 18)) << "8 of 10";
  EXPECT_FALSE(separates(100, 16)) << "the extra token leaves 9 an epoch: 7 of 9";
  EXPECT_TRUE(separates(100, 16, /*add_extra_token=*/false)) << "6 of 10";
}

std::uint64_t polynomial(const NpyArray& array) {
  std::uint64_t sum = 0;
  for (std::int64_t i = 0; i < array.size(); ++i)
    sum = sum * 1000003 + static_cast<std::uint64_t>(array.at(i));
  return sum;
}

// Threads cut blocks of documents; the expected sums are those of the arrays of numpy's RandomState
// and megatron-core's build_sample_idx_int32 for the same lengths, two epochs and seed 1234.
TEST(GptIndex, OrdersManyDocumentsAsMegatronCore) {
  constexpr std::int64_t kDocuments = 100000, kSamples = 207569;
  std::vector<std::int32_t> lengths;
  for (std::int64_t i = 0; i < kDocuments; ++i)
    lengths.push_back(i % 5 == 0 ? 0 : static_cast<std::int32_t>(i * 7919 % 97));
  const GptIndex index = build_gpt_index(
      {.lengths = {reinterpret_cast<const std::byte*>(lengths.data()), lengths.size()},
       .begin = 0,
       .end = kDocuments,
       .num_samples = kSamples,
       .sequence_length = 37,
       .seed = 1234});
  EXPECT_THAT(index.sample_index.shape(), ElementsAre(kSamples + 1, 2));
  EXPECT_EQ(polynomial(index.document_index), 5523813918370815372u);
  EXPECT_EQ(polynomial(index.sample_index), 3765375664725716731u);
  EXPECT_EQ(polynomial(index.shuffle_index), 16903249427839299778u);
}

Sample make(SampleText text, const GptDatasetOptions& options) {
  return make_sample(
      std::make_shared<const std::vector<SampleField>>(causal_fields(options.sequence_length)),
      std::move(text), options);
}

TEST(MakeSample, ResetsAndMasksAfterEndOfDocument) {
  const GptDatasetOptions options{.sequence_length = 6,
                                  .reset_position_ids = true,
                                  .reset_attention_mask = true,
                                  .eod_mask_loss = true,
                                  .eod = 0};
  const Sample sample = make({.ids = {5, 0, 7, 0, 0, 3, 2}}, options);
  EXPECT_THAT(sample.get<float>("loss_mask"), ElementsAre(1, 0, 1, 0, 0, 1));
  EXPECT_THAT(sample.get("position_ids"), ElementsAre(0, 1, 0, 1, 0, 0));
  EXPECT_THAT(sample.document_starts, ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(make({.ids = {5, 0, 7, 2, 3, 0, 2}}, options).document_starts, ElementsAre(0, 2))
      << "no document starts behind the sample";
}

/// megatron-core: cu_seqlens are the sums of the documents' lengths without the extra token, and
/// position ids restart with each document. Ends of documents inside one restart only what their
/// own flags say.
TEST(MakeSample, PacksTheDocumentsOfTheData) {
  GptDatasetOptions options{.sequence_length = 6, .inter_document_masking = true, .eod = 0};
  const std::vector<std::int64_t> text{5, 0, 7, 0, 8, 3, 2};
  const Sample sample = make({.ids = text, .document_begins = {0, 2, 5, 6}}, options);
  EXPECT_THAT(sample.document_starts, ElementsAre(0, 2, 5)) << "the extra token begins the last";
  EXPECT_THAT(sample.get("position_ids"), ElementsAre(0, 1, 0, 1, 2, 0));
  EXPECT_THAT(sample.get<float>("loss_mask"), ElementsAre(1, 1, 1, 1, 1, 1));
  options.reset_attention_mask = true;
  EXPECT_THAT(make({.ids = text, .document_begins = {0, 2, 5}}, options).document_starts,
              ElementsAre(0, 2, 4, 5));
}

TEST(MakeSample, WithoutExtraTokenTheLastLabelIsMasked) {
  const Sample sample = make({.ids = {5, 6, 7}}, {.sequence_length = 3, .add_extra_token = false});
  EXPECT_THAT(sample.get("labels"), ElementsAre(6, 7, 0));
  EXPECT_THAT(sample.get<float>("loss_mask"), ElementsAre(1, 1, 0));
}

TEST(MockDataset, EqualsMegatronCore) {
  const auto source = std::make_shared<const MockTokenSource>(5000, 4999);
  std::vector<std::string> warnings;
  const SplitMatrix thirds = parse_split("1,1,1");
  const auto [begin, end] = split_range(*thirds[1], 100000);
  const GptDataset valid(source, {std::nullopt, begin, end, 20, Split::valid},
                         {.sequence_length = 16, .seed = 7}, warnings);
  EXPECT_EQ(valid.size(), 4259983);
  EXPECT_EQ(valid.sample(0).get("tokens").front(), 853);
  EXPECT_EQ(valid.sample(1).get("tokens").back(), 51);
  EXPECT_EQ(valid.sample(9).get("labels").front(), 1830);
}

TEST(MockTokenSource, CountsToTheEndWithoutAnEndOfDocument) {
  for (const std::int64_t eod : {-1, 7}) {
    const MockTokenSource source(20, eod, 16);
    const auto length = static_cast<std::size_t>(source.sequence_lengths()[0]);
    std::vector<std::int64_t> tokens(length);
    source.read(0, 0, tokens);
    EXPECT_EQ(tokens.back(), eod < 0 ? std::ssize(tokens) : eod);
  }
}

/// Three sequences that count how often they are checked; building the order checks them.
class CountingSource : public TokenSource {
 public:
  std::string name() const override { return "three sequences"; }
  UnalignedView<std::int32_t> sequence_lengths() const override {
    return {reinterpret_cast<const std::byte*>(lengths_.data()), lengths_.size()};
  }
  void check() const override { ++checks; }
  void read(std::int64_t, std::int64_t, std::span<std::int64_t> tokens) const override {
    std::fill(tokens.begin(), tokens.end(), 1);
  }
  mutable int checks = 0;

 private:
  std::vector<std::int32_t> lengths_{5, 6, 7};
};

TEST(MockDataset, IsOrderedWhenASampleIsRead) {
  const auto source = std::make_shared<const CountingSource>();
  std::vector<std::string> warnings;
  const GptDataset train(source, {std::nullopt, 0, 3, 10, Split::train}, {.sequence_length = 4},
                         warnings);
  EXPECT_GE(train.size(), 10);
  EXPECT_EQ(source->checks, 0) << "the order was built at once";
  train.text(0);
  train.text(1);
  EXPECT_EQ(source->checks, 1);
}

TEST_F(GptDatasetTest, RefusesSamplesWhoseTokensCannotBeCounted) {
  for (const std::int64_t samples : {std::int64_t{1} << 50, std::int64_t{1} << 62})
    EXPECT_THAT(message_of([&] { make(Split::train, samples); }),
                testing::HasSubstr("samples would repeat the train split"));
}

}  // namespace
}  // namespace megatron
