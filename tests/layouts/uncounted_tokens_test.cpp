// The loss is the sum over the tokens that count, divided by their number, in both of Megatron's
// modes: also where a rank, a microbatch or a whole step has none of them.
#include <gtest/gtest.h>

#include <cmath>

#include "layouts/layout_run.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "support/temporary_folder.h"

namespace megatron::layouts {
namespace {

constexpr double kLimit = 1e-12;
constexpr std::int32_t kLength = 48, kEod = 60;

/// A corpus of 40 samples of one document each. Only the first `counted(i)` tokens of document i
/// are no ends of documents.
template <class Counted>
std::string write_corpus(const fs::path& prefix, const Counted& counted) {
  IndexedDatasetBuilder builder(prefix.string(), TokenDtype::int32);
  for (std::int32_t document = 0; document < 40; ++document) {
    std::vector<std::int32_t> tokens(kLength, kEod);
    for (std::int32_t i = 0; i < counted(document); ++i)
      tokens[static_cast<std::size_t>(i)] = (document * 31 + i * i) % kEod;
    builder.add_document(tokens, std::vector{kLength});
  }
  builder.finalize();
  return prefix.string();
}

TrainingResult train(const std::string& corpus, const Flags& more, std::int64_t world_size) {
  Flags all = common_flags();
  std::erase(all, "--mock-data");
  const Flags common{
      "--data-path",          corpus, "--split", "100,0,0", "--eod-mask-loss", "--seq-length",
      std::to_string(kLength)};
  for (const Flags& flags : {common, one_sgd_step(), more})
    all.insert(all.end(), flags.begin(), flags.end());
  return train_in_layout(all, world_size, {.dtype = at::kDouble});
}

/// Layouts in which whole ranks hold only uncounted tokens.
struct Sparse {
  Flags flags;
  std::int64_t world_size;
};
const std::vector<Sparse>& sparse_layouts() {
  static const std::vector<Sparse> all = {
      {{"--context-parallel-size", "4"}, 4},
      {{"--context-parallel-size", "3", "--cp-comm-type", "all_gather"}, 3},
      {{"--context-parallel-size", "2", "--cp-comm-type", "a2a", "--use-distributed-optimizer"}, 4},
      {{"--context-parallel-size", "2", "--pipeline-model-parallel-size", "2",
        "--pipeline-schedule", "zb-h1"},
       4},
      {{"--context-parallel-size", "2", "--tensor-model-parallel-size", "2", "--sequence-parallel"},
       4}};
  return all;
}

void expect_equal(const TrainingResult& actual, const TrainingResult& expected) {
  EXPECT_LE(curve_distance(actual.losses, expected.losses), kLimit);
  expect_gradients(actual, expected, kLimit);
}

// A third of the samples counts nowhere, a third only in the first chunk of the first rank.
TEST(UncountedTokens, OnSomeRanksAndMicrobatchesChangeNothing) {
  const TemporaryFolder folder;
  const std::string corpus = write_corpus(folder / "sparse", [](std::int32_t document) {
    return document % 3 == 0 ? 0 : document % 3 == 1 ? 5 : kLength;
  });
  for (const Flags& mode : {Flags{}, Flags{"--calculate-per-token-loss"}}) {
    const TrainingResult expected = train(corpus, mode, 1);
    EXPECT_TRUE(std::isfinite(expected.losses[0]) && expected.losses[0] > 0);
    for (const auto& [flags, world_size] : sparse_layouts()) {
      Flags more = mode;
      more.insert(more.end(), flags.begin(), flags.end());
      SCOPED_TRACE(testing::PrintToString(more));
      expect_equal(train(corpus, more, world_size), expected);
    }
  }
}

TEST(UncountedTokens, InAWholeStepGiveNoLossAndNoGradient) {
  const TemporaryFolder folder;
  const std::string corpus = write_corpus(folder / "none", [](std::int32_t) { return 0; });
  const Flags hybrid{"--calculate-per-token-loss", "--dataloader-inter-document-masking",
                     "--hybrid-context-parallel", "--max-seqlen-per-dp-cp-rank", "24"};
  for (const Flags& mode :
       {Flags{"--context-parallel-size", "2"},
        Flags{"--context-parallel-size", "2", "--calculate-per-token-loss"}, hybrid}) {
    SCOPED_TRACE(testing::PrintToString(mode));
    const TrainingResult result = train(corpus, mode, 4);
    EXPECT_EQ(result.losses, std::vector<double>{0});
    for (const auto& [name, after] : result.after)
      EXPECT_TRUE(after.equal(result.before.at(name))) << name;
  }
}

}  // namespace
}  // namespace megatron::layouts
