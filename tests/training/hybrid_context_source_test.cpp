// The ranks of hybrid context parallelism together hold every counted token of a step once, with
// its label, its position and its sequence, within the rows that a rank may hold.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "megatron/ops/sequence_placement.h"
#include "megatron/training/feeding/dataset_source.h"

namespace megatron {
namespace {

constexpr std::int64_t kLength = 64;

/// Samples of documents of 1 to 40 tokens. Token p of sample i is 1000·i + p; every fifth does not
/// count, and neither does the last document of every third sample.
class DocumentDataset : public Dataset {
 public:
  std::int64_t size() const override { return 10; }
  const SampleFields& fields() const override { return fields_; }
  Sample sample(std::int64_t index) const override {
    std::mt19937 random(static_cast<unsigned>(index));
    std::vector<std::int64_t> tokens, labels, positions, starts;
    std::vector<float> mask;
    for (std::int64_t p = 0; p < kLength; ++p) {
      if (p == 0 || random() % 16 == 0) starts.push_back(p);
      tokens.push_back(1000 * index + p);
      labels.push_back(1000 * index + p + 1);
      positions.push_back(p - starts.back());
      mask.push_back(p % 5 == 4 ? 0.0f : 1.0f);
    }
    if (index % 3 == 0) std::fill(mask.begin() + starts.back(), mask.end(), 0.0f);
    return {{fields_, tokens, labels, positions, mask}, starts, {}};
  }
  std::string describe(std::int64_t index) const override { return std::to_string(index); }
  std::vector<CorpusShare> shares(std::int64_t) const override { return {}; }

 private:
  SampleFields fields_ = std::make_shared<const std::vector<SampleField>>(causal_fields(kLength));
};

/// Label, position and sequence's ordinal of each counted token.
using Counted = std::map<std::int64_t, std::tuple<std::int64_t, std::int64_t, std::int64_t>>;

/// What one rank holds of samples `first` to `first` + `count` − 1.
Counted expected_of(std::int64_t first, std::int64_t count) {
  Counted expected;
  for (std::int64_t i = 0; i < count; ++i) {
    const Sample sample = DocumentDataset().sample(first + i);
    std::int64_t document = -1;
    for (std::int64_t p = 0; p < kLength; ++p) {
      const auto at = static_cast<std::size_t>(p);
      const std::int64_t position = sample.get("position_ids")[at];
      if (position == 0) ++document;
      if (sample.get<float>("loss_mask")[at] > 0)
        expected[sample.get("tokens")[at]] = {sample.get("labels")[at], position,
                                              packed_ordinal(i, document)};
    }
  }
  return expected;
}

/// Adds the counted tokens of a microbatch. Returns their number.
std::int64_t add_counted(const Microbatch& microbatch, std::int64_t rank, Counted& counted) {
  const HybridContext& hybrid = *microbatch.packed->hybrid;
  const SequencePlacement placement = placement_of(microbatch, hybrid.num_ranks);
  const RowsInSequences rows = rows_in_sequences(
      placement.runs_of[static_cast<std::size_t>(rank % hybrid.num_ranks)], placement);
  const auto value = [&](const char* name, std::int64_t row) {
    return microbatch.at(name)[0][row].item<std::int64_t>();
  };
  std::int64_t count = 0;
  for (std::int64_t row = 0; row < microbatch.at("tokens").size(1); ++row) {
    if (microbatch.at("loss_mask")[0][row].item<float>() == 0) continue;
    ++count;
    EXPECT_EQ(rows.positions[row].item<std::int64_t>(), value("position_ids", row));
    const auto ordinal =
        microbatch.sample_ordinals[rows.sequences[row].item<std::int64_t>()].item<std::int64_t>();
    EXPECT_TRUE(counted
                    .try_emplace(value("tokens", row), value("labels", row),
                                 value("position_ids", row), ordinal)
                    .second)
        << "token " << value("tokens", row) << " is here twice";
  }
  return count;
}

void check_steps(std::int64_t num_ranks, std::int64_t most_rows, std::int64_t row_multiple) {
  SCOPED_TRACE(testing::Message() << num_ranks << " ranks of " << most_rows);
  std::vector<std::unique_ptr<MicrobatchSource>> sources;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank)
    sources.push_back(make_dataset_source(
        std::make_shared<DocumentDataset>(),
        {.loader = {.num_workers = 0},
         .hybrid = HybridContextOptions{
             .rank = rank,
             .num_ranks = num_ranks,
             .max_rows_per_rank = most_rows,
             .row_multiple = row_multiple,
             .cost = {.per_token = 1, .per_squared_token = 0.1},
             // Steps of 3 samples, then of 4.
             .samples_of_step = [](std::int64_t consumed) { return consumed < 3 ? 3 : 4; }}}));
  for (const auto& [first, count] : {std::pair{0, 3}, {3, 4}}) {
    Counted counted;
    std::size_t microbatches = 0;
    for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
      const auto step = next_step(*sources[static_cast<std::size_t>(rank)], 99);
      if (rank == 0) microbatches = step.size();
      EXPECT_EQ(step.size(), microbatches) << "rank " << rank;
      for (const Microbatch& microbatch : step) {
        EXPECT_LE(microbatch.at("tokens").size(1), most_rows);
        EXPECT_EQ(microbatch.at("tokens").size(1) % row_multiple, 0);
        const std::int64_t own = add_counted(microbatch, rank, counted);
        EXPECT_GE(microbatch.num_tokens().item<double>(), static_cast<double>(own));
      }
    }
    EXPECT_EQ(counted, expected_of(first, count));
  }
}

TEST(HybridContextSource, RanksHoldEveryCountedTokenOnce) {
  check_steps(1, 64, 1);
  check_steps(2, 32, 1);
  check_steps(3, 64, 1);
  check_steps(4, 16, 1);
  check_steps(4, 24, 3);
  check_steps(8, 9, 1);
}

}  // namespace
}  // namespace megatron
