// The mixtures of --blend-schedule: the accounting of every source against brute force, and one
// order for any number of ranks and any place of a resume.
#include "megatron/datasets/blend_phases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

#include "datasets/corpus.h"
#include "megatron/config/data_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/datasets/blended_dataset.h"
#include "megatron/datasets/builder.h"
#include "megatron/datasets/data_loader.h"
#include "megatron/datasets/data_report.h"
#include "megatron/datasets/gpt_index.h"
#include "megatron/datasets/sample_counts.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

BlendPhase phase(std::int64_t num_samples, std::vector<double> weights) {
  BlendPhase result{.span = {}, .weights = normalize(std::move(weights))};
  result.span.num_samples = num_samples;
  return result;
}

Pairs pairs(const BlendIndex& index) {
  Pairs result;
  for (std::int64_t i = 0; i < index.dataset_index.size(); ++i)
    result.emplace_back(index.dataset_index.at(i), index.dataset_sample_index.at(i));
  return result;
}

/// Two orders of megatron-core (blended_dataset_test.cpp) follow each other; the samples of the
/// second begin where the first left each source.
TEST(PhasedBlendIndex, EachMixtureHasMegatronsOrder) {
  EXPECT_EQ(pairs(build_phased_blend_index({phase(10, {.3, .7}), phase(6, {.5, .5})})),
            (Pairs{{1, 0},
                   {0, 0},
                   {1, 1},
                   {1, 2},
                   {0, 1},
                   {1, 3},
                   {1, 4},
                   {0, 2},
                   {1, 5},
                   {1, 6},
                   {0, 3},
                   {1, 7},
                   {0, 4},
                   {1, 8},
                   {0, 5},
                   {1, 9}}));
}

TEST(PhasedBlendIndex, OneMixtureIsThePlainBlend) {
  const std::vector<double> weights = normalize({1, 2, 4});
  EXPECT_EQ(pairs(build_phased_blend_index({phase(1000, {1, 2, 4})})),
            pairs(build_blend_index(weights, 1000)));
}

/// Draws the source that lags most behind its weight in integers: weight·max(p, 1) − sum·drawn.
std::vector<std::int64_t> brute_force(const std::vector<std::vector<std::int64_t>>& weights,
                                      const std::vector<std::int64_t>& sizes, std::int64_t until) {
  std::vector<std::int64_t> total(weights[0].size(), 0);
  for (std::size_t k = 0; k < sizes.size(); ++k) {
    std::int64_t sum = 0;
    for (const std::int64_t weight : weights[k]) sum += weight;
    std::vector<std::int64_t> drawn(total.size(), 0);
    for (std::int64_t p = 0; p < sizes[k] && until > 0; ++p, --until) {
      std::size_t best = total.size();
      std::int64_t most = 0;
      for (std::size_t i = 0; i < total.size(); ++i) {
        const std::int64_t behind = weights[k][i] * std::max<std::int64_t>(p, 1) - sum * drawn[i];
        if (weights[k][i] > 0 && (best == total.size() || behind > most)) best = i, most = behind;
      }
      ++drawn[best], ++total[best];
    }
  }
  return total;
}

/// Weights are parts of a power of two, so that the lags are exact in float64.
TEST(PhasedBlendIndex, CountsOfEverySourceEqualBruteForceAtEveryStep) {
  std::mt19937 random(7);
  for (int run = 0; run < 60; ++run) {
    const std::size_t sources = 2 + random() % 4, count = 1 + random() % 4;
    std::vector<std::vector<std::int64_t>> weights(count);
    std::vector<std::int64_t> sizes;
    std::vector<BlendPhase> phases;
    for (std::size_t k = 0; k < count; ++k) {
      std::int64_t left = 64;
      for (std::size_t i = 0; i + 1 < sources; ++i) {
        weights[k].push_back(static_cast<std::int64_t>(random() % 3 == 0 ? 0 : random() % 16));
        left -= weights[k].back();
      }
      weights[k].push_back(left);
      sizes.push_back(static_cast<std::int64_t>(random() % 90));
      phases.push_back(
          phase(sizes.back(), std::vector<double>(weights[k].begin(), weights[k].end())));
    }
    const Pairs drawn = pairs(build_phased_blend_index(phases));
    std::vector<std::int64_t> taken(sources, 0);
    for (std::size_t p = 0; p < drawn.size(); ++p) {
      const auto [source, sample] = drawn[p];
      // No sample of a source repeats, and none is passed over.
      ASSERT_EQ(sample, taken[static_cast<std::size_t>(source)]++) << run << ' ' << p;
      ASSERT_EQ(taken, brute_force(weights, sizes, static_cast<std::int64_t>(p) + 1))
          << run << ' ' << p;
    }
    const std::vector<std::int64_t> built = samples_to_build(phases, 0);
    for (std::size_t i = 0; i < sources; ++i) EXPECT_LE(taken[i], built[i]) << run;
  }
}

class MixtureTest : public ::testing::Test {
 protected:
  MixtureTest() {
    test::write_corpus(a_, test::small_corpus());
    test::write_corpus(b_, std::vector<std::vector<std::int32_t>>(30, {51, 52, 53, 54, 55, 56}));
    test::write_corpus(c_, std::vector<std::vector<std::int32_t>>(50, {61, 62, 63, 64}));
    settings_.data->data_path = {a_, b_, c_};
    settings_.data->split = "100,0,0";
    settings_.training->micro_batch_size = 2;
    settings_.training->global_batch_size = 4;
    settings_.training->seq_length = 8;
    settings_.training->train_iters = 30;
    settings_.training->eval_iters = 0;
  }

  Datasets build() const {
    DatasetRequest request =
        run_dataset_request(settings_, train_valid_test_num_samples(settings_));
    request.cache = false;
    request.tokenizer = {.vocab_size = 100, .eod = 0};
    return build_datasets(*settings_.data, request);
  }
  std::string schedule_error() const {
    return message_of([&] { train_blend_schedule(*settings_.training, *settings_.data); });
  }
  std::int64_t count(double epochs) {
    settings_.training->train_epochs = epochs;
    return samples_of_train_epochs(settings_, {.cache = false});
  }

  TemporaryFolder folder_;
  std::string a_ = folder_ / "a", b_ = folder_ / "b", c_ = folder_ / "c";
  Settings settings_;
};

TEST_F(MixtureTest, WeightsFollowTheSchedule) {
  settings_.data->blend_schedule = {"0: 3 " + a_ + " 1 " + b_, "10: 1 " + c_ + " 1 " + a_};
  const BlendSchedule schedule = train_blend_schedule(*settings_.training, *settings_.data);
  EXPECT_THAT(schedule.sources, ElementsAre(a_, b_, c_));
  ASSERT_EQ(schedule.phases.size(), 2u);
  EXPECT_THAT(schedule.phases[0].weights, ElementsAre(0.75, 0.25, 0));
  EXPECT_THAT(schedule.phases[1].weights, ElementsAre(0.5, 0, 0.5));
  EXPECT_EQ(schedule.phases[0].span.num_samples, 40);
  EXPECT_EQ(schedule.phases[1].span.num_samples, 80);
  EXPECT_EQ(blend_phase_line(schedule, 1),
            "mixture 2 of 2, iterations 11 to 30: 0.5 " + a_ + ", 0.5 " + c_);
}

TEST_F(MixtureTest, TheDatasOwnWeightsHoldBeforeTheFirstStep) {
  settings_.data->data_path = {"1", a_, "3", b_};
  settings_.data->blend_schedule = {"10: 1 " + a_};
  const BlendSchedule schedule = train_blend_schedule(*settings_.training, *settings_.data);
  ASSERT_EQ(schedule.phases.size(), 2u);
  EXPECT_THAT(schedule.phases[0].weights, ElementsAre(0.25, 0.75));
  EXPECT_THAT(schedule.phases[1].weights, ElementsAre(1, 0));
}

TEST_F(MixtureTest, RefusesMistakes) {
  settings_.data->blend_schedule = {"10: 1 " + a_};
  EXPECT_THAT(schedule_error(), HasSubstr("no mixture before iteration 10"));
  settings_.data->blend_schedule = {"0: 1 " + a_ + " 1 d"};
  EXPECT_THAT(schedule_error(), HasSubstr("d is not a source of the training data"));
  settings_.data->blend_schedule = {"0: 1 " + a_ + " 1 " + b_};
  EXPECT_THAT(schedule_error(), HasSubstr("never draws from " + c_));
  settings_.data->data_path = {a_};
  EXPECT_THAT(schedule_error(), HasSubstr("there is one"));
  settings_.data->data_path = {a_, a_};
  EXPECT_THAT(schedule_error(), HasSubstr("sources of one name"));
}

/// A source gives the samples of its own data set in order, across all changes.
TEST_F(MixtureTest, ASourceKeepsItsPlace) {
  settings_.data->blend_schedule = {"0: 3 " + a_ + " 1 " + b_, "10: 1 " + c_,
                                    "20: 1 " + a_ + " 1 " + b_};
  const Datasets datasets = build();
  const auto& blend = dynamic_cast<const BlendedDataset&>(*datasets.train());
  ASSERT_EQ(blend.size(), 120);
  std::map<std::int64_t, std::int64_t> taken;
  for (std::int64_t i = 0; i < blend.size(); ++i)
    ASSERT_EQ(blend.index().dataset_sample_index.at(i), taken[blend.index().dataset_index.at(i)]++);
  EXPECT_EQ(taken[0], 30 + 20);
  EXPECT_EQ(taken[1], 10 + 20);
  EXPECT_EQ(taken[2], 40);
  const std::vector<CorpusShare> shares = blend.shares(120);
  ASSERT_EQ(shares[0].phases.size(), 3u);
  EXPECT_EQ(shares[0].phases[1].samples, 0);
  EXPECT_EQ(shares[0].phases[2].samples, 20);
  EXPECT_EQ(shares[0].phases[2].first_iteration, 21);
  EXPECT_DOUBLE_EQ(shares[1].phases[2].epochs, 20 * 8 / 180.0);
  // Stopped early, the report counts what was taken.
  EXPECT_EQ(blend.shares(50)[0].phases[0].samples, 30);
  EXPECT_EQ(blend.shares(50)[2].phases[1].samples, 10);
  EXPECT_EQ(blend.shares(50)[1].phases[2].samples, 0);
}

/// Returns the samples of a step range, as ranks read them that start at `consumed`.
std::vector<std::vector<std::int64_t>> read(const std::shared_ptr<const Dataset>& dataset,
                                            std::int64_t consumed, std::int64_t micro,
                                            std::int64_t ranks) {
  std::map<std::int64_t, std::vector<std::int64_t>> by_ordinal;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    DataLoader loader(dataset, {.sampler = {.consumed_samples = consumed,
                                            .micro_batch_size = micro,
                                            .data_parallel_rank = rank,
                                            .data_parallel_size = ranks},
                                .num_workers = 0});
    while (const std::optional<Batch> batch = loader.next()) {
      const std::int64_t length = batch->sequence_length();
      const auto tokens = batch->get("tokens").begin();
      for (std::int64_t row = 0; row < batch->rows; ++row)
        by_ordinal[batch->indices.ordinals[static_cast<std::size_t>(row)]].assign(
            tokens + row * length, tokens + (row + 1) * length);
    }
  }
  std::vector<std::vector<std::int64_t>> samples;
  for (auto& [ordinal, tokens] : by_ordinal) samples.push_back(std::move(tokens));
  return samples;
}

TEST_F(MixtureTest, AnyRanksAndAnyResumeReadOneOrder) {
  settings_.data->blend_schedule = {"0: 3 " + a_ + " 1 " + b_, "7: 1 " + c_ + " 2 " + b_};
  const Datasets datasets = build();
  const std::shared_ptr<const Dataset>& train = datasets.splits[0];
  const auto whole = read(train, 0, 1, 1);
  ASSERT_EQ(whole.size(), 120u);
  EXPECT_EQ(read(train, 0, 2, 2), whole);
  for (const std::int64_t consumed : {4, 24, 28, 32, 116}) {
    const std::vector<std::vector<std::int64_t>> rest(whole.begin() + consumed, whole.end());
    EXPECT_EQ(read(train, consumed, 1, 1), rest) << consumed;
    EXPECT_EQ(read(train, consumed, 1, 4), rest) << consumed;
    EXPECT_EQ(read(build().splits[0], consumed, 2, 2), rest) << consumed;
  }
}

/// megatron-core takes exactly this many samples from so many epochs: one more needs another epoch.
TEST_F(MixtureTest, EpochsOfOneSourceAreMegatrons) {
  settings_.data->data_path = {a_};
  std::vector<std::int32_t> lengths;
  for (const auto& document : test::small_corpus())
    lengths.push_back(static_cast<std::int32_t>(document.size()));
  GptIndexInput input{.lengths = UnalignedView<std::int32_t>(
                          reinterpret_cast<const std::byte*>(lengths.data()), lengths.size()),
                      .begin = 0,
                      .end = static_cast<std::int64_t>(lengths.size()),
                      .sequence_length = 8};
  for (const std::int64_t epochs : {1, 2, 3, 10}) {
    const std::int64_t samples = count(static_cast<double>(epochs));
    input.num_samples = samples;
    EXPECT_EQ(plan_epochs(input).num_epochs, epochs);
    EXPECT_EQ(plan_epochs(input).total_samples, samples);
    input.num_samples = samples + 1;
    EXPECT_EQ(plan_epochs(input).num_epochs, epochs + 1);
  }
  const std::int64_t tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  EXPECT_EQ(count(0.5), (tokens / 2 - 1) / 8);
  EXPECT_EQ(count(1e-6), 0);
}

/// An epoch of a blend is what all its sources have together, with and without weights.
TEST_F(MixtureTest, EpochsOfABlendAreTheSumOfItsSources) {
  settings_.data->data_path = {b_};
  const std::int64_t b = count(2);
  EXPECT_EQ(b, (2 * 180 - 1) / 8);
  settings_.data->data_path = {c_};
  const std::int64_t c = count(2);
  EXPECT_EQ(c, (2 * 200 - 1) / 8);
  settings_.data->data_path = {b_, c_};
  EXPECT_EQ(count(2), b + c);
  settings_.data->data_path = {"1", b_, "9", c_};
  EXPECT_EQ(count(2), b + c);
  settings_.data->split = "50,50,0";
  EXPECT_EQ(count(2), (180 - 1) / 8 + (200 - 1) / 8);
}

/// Without weights, more than one epoch mixes the sources by their sizes, without a repeated order.
TEST_F(MixtureTest, ARunGoesOnPastOneEpochOfABlendWithoutWeights) {
  settings_.data->data_path = {b_, c_};
  const auto blend = [&](std::int64_t samples) {
    settings_.training->train_samples = samples;
    const Datasets datasets = build();
    return pairs(dynamic_cast<const BlendedDataset&>(*datasets.train()).index());
  };
  const Pairs one = blend(22 + 24);
  EXPECT_EQ(one, pairs(build_exhaustive_blend_index({22, 24})));
  EXPECT_EQ(blend(3 * 46), pairs(build_blend_index(normalize({22, 24}), 3 * 46)));
}

TEST_F(MixtureTest, TheRunsLengthFollowsFromItsEpochs) {
  settings_.data->data_path = {b_};
  settings_.training->train_iters = 0;
  settings_.training->train_epochs = 2;
  settings_.scheduler->lr = 1;
  settings_.tokenizer->tokenizer_type = "NullTokenizer";
  settings_.tokenizer->vocab_size = 100;
  Settings by_iterations = settings_;
  set_run_length(by_iterations, 44, 1);
  EXPECT_EQ(by_iterations.training->train_iters, 11);
  EXPECT_EQ(by_iterations.training->train_samples, 0);
  EXPECT_EQ(epochs_line(by_iterations, 44),
            "> --train-epochs 2 is 44 samples of training data: "
            "training takes 44 in 11 iterations");
  Settings by_samples = settings_;
  by_samples.scheduler->lr_warmup_samples = 10;
  set_run_length(by_samples, 46, 1);
  EXPECT_EQ(by_samples.training->train_iters, 11);
  EXPECT_EQ(by_samples.training->train_samples, 46);
  Settings too_short = settings_;
  EXPECT_THAT(message_of([&] { set_run_length(too_short, 3, 1); }),
              HasSubstr("3 samples, less than one global batch of 4"));
  Settings too_warm = settings_;
  too_warm.scheduler->lr_warmup_iters = 11;
  EXPECT_THAT(message_of([&] { set_run_length(too_warm, 44, 1); }), HasSubstr("--lr-warmup-iters"));
  Settings late = settings_;
  late.data->data_path = {b_, c_};
  late.data->blend_schedule = {"0: 1 " + b_ + " 11: 1 " + c_};
  EXPECT_THAT(message_of([&] { set_run_length(late, 44, 1); }),
              HasSubstr("iteration 11 is not before the end of training"));
}

}  // namespace
}  // namespace megatron
