// Replicas that compute each other's microbatches: a rank that computes wrongly is named with the
// rank that it differs from, and right ranks of any layout agree bit for bit.
#include "megatron/training/resilience/reruns/peer_recomputation.h"

#include <ATen/ops/add.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"
#include "training/fake_model.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing_models::FakeModel;
using testing_models::FakeOptimizer;
using testing_models::ListSource;
using testing_models::microbatch;

TEST(PeerRecomputation, TheFirstDifferenceIsNamed) {
  const PassResults own{.names = {"a", "b", "c"}, .bits = {1, 2, 3}};
  EXPECT_EQ(first_difference(own, {1, 2, 3}), "");
  EXPECT_EQ(first_difference(own, {1, 5, 6}), "b is the first of 2 of 3 results to differ");
}

/// A model whose losses are too large on a broken rank.
class BrokenModel : public FakeModel {
 public:
  explicit BrokenModel(bool is_broken) : FakeModel(4), is_broken_(is_broken) {}
  StageOutput forward_chunk(std::int64_t chunk, const Microbatch& microbatch,
                            const Activations& input, bool training) override {
    StageOutput output = FakeModel::forward_chunk(chunk, microbatch, input, training);
    if (is_broken_) output.loss->loss_sum = output.loss->loss_sum * 1.0000002;
    return output;
  }

 private:
  bool is_broken_;
};

/// Returns what all replicas say when `broken` computes wrongly, and which ranks hold the suspect.
std::pair<std::string, std::vector<std::int64_t>> verdict_of(std::int64_t replicas,
                                                             std::int64_t broken) {
  std::mutex mutex;
  std::set<std::string> texts;
  std::vector<std::int64_t> holders;
  run_rank_threads(replicas, [&](Communicators& communicators) {
    const Mesh mesh({}, replicas);
    const Rank rank = make_rank(mesh, communicators, {});
    BrokenModel model(rank.index == broken);
    ParamStore weights(declared_parameters(model), {});
    FakeOptimizer optimizer(weights);
    Timers timers(0, TimerStatistic::minmax);
    const PipelinePlan pipeline;
    // Losses of ½·label² per token: those of the replicas differ.
    ListSource source({microbatch({0, 1}, {1, static_cast<float>(2 + rank.index)}, {1, 1})});
    const TrainStepContext context{model, weights, optimizer, source, timers, rank, pipeline};
    const TrainStepOptions options{.iteration = 4};
    const PeerVerdict verdict =
        recompute_on_peers(context, options, fetch_microbatches(context, options));
    const std::lock_guard lock(mutex);
    texts.insert(verdict.differences);
    if (verdict.suspect.is_here) holders.push_back(rank.index);
  });
  EXPECT_EQ(texts.size(), 1) << "all ranks say the same";
  std::ranges::sort(holders);
  return {*texts.begin(), holders};
}

TEST(PeerRecomputation, TwoReplicasNameEachOther) {
  EXPECT_EQ(verdict_of(2, -1).first, "");
  const auto [text, holders] = verdict_of(2, 1);
  EXPECT_THAT(text, HasSubstr("the first microbatch of rank 1 ("));
  EXPECT_THAT(text, HasSubstr(") has other results on rank 0 ("));
  EXPECT_THAT(text, HasSubstr("the first microbatch of rank 0 ("));
  EXPECT_THAT(text, HasSubstr("the loss is the first of "));
  EXPECT_THAT(text, Not(HasSubstr("suspect")));
  EXPECT_THAT(holders, testing::ElementsAre(0, 1));
}

TEST(PeerRecomputation, OfThreeReplicasTheBrokenOneIsNamed) {
  EXPECT_EQ(verdict_of(3, -1).first, "");
  for (std::int64_t broken = 0; broken < 3; ++broken) {
    const auto [text, holders] = verdict_of(3, broken);
    EXPECT_THAT(text, testing::ContainsRegex("\n  rank " + std::to_string(broken) +
                                             " \\([^)]*\\) is in both pairs"));
  }
}

/// Returns the log of rank 0 of a run of `ranks` rank threads, which ends with exit code `code`.
/// The weights of rank `broken` are not those of the other replicas.
std::string log_of(std::int64_t ranks, std::vector<std::string> flags, std::int64_t broken = -1,
                   int code = 0) {
  flags.insert(flags.end(), {"--global-batch-size", "8", "--train-iters", "4", "--eval-iters", "0",
                             "--lr-warmup-iters", "0"});
  const auto run = read_run(small_run::flags(flags), ranks);
  std::string log;
  run_rank_threads(ranks, [&](Communicators& communicators) {
    std::ostringstream out;
    Trainer trainer =
        set_up(run, out, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    if (communicators.rank() == broken)
      at::Tensor(trainer.state.weights->parameters().back()->value()).mul_(1.01);
    EXPECT_EQ(train(trainer, out), code) << out.str();
    if (communicators.rank() == 0) log = out.str();
  });
  return log;
}

/// Returns the losses and grad norms of the log lines.
std::string numbers_in(const std::string& log) {
  std::istringstream lines(log);
  std::string numbers;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t loss = line.find("lm loss: "), norm = line.find("grad norm: ");
    if (loss != std::string::npos && norm != std::string::npos)
      numbers += line.substr(loss, 22) + line.substr(norm, 18) + "\n";
  }
  return numbers;
}

TEST(PeerRecomputation, RightReplicasAgreeAndTheRunIsTheSame) {
  const std::vector<std::vector<std::string>> layouts{
      {"--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"},
      {"--tensor-model-parallel-size", "2", "--sequence-parallel"},
      {"--pipeline-model-parallel-size", "2"},
      {"--context-parallel-size", "2"},
      {"--num-experts", "4", "--moe-router-load-balancing-type", "global_aux_loss",
       "--moe-aux-loss-coeff", "0.1"}};
  for (const std::vector<std::string>& layout : layouts) {
    SCOPED_TRACE(layout.front());
    std::vector<std::string> checked = layout;
    checked.insert(checked.end(), {"--check-microbatch-across-dp-replicas-interval", "2"});
    const std::string log = log_of(4, checked), numbers = numbers_in(log);
    EXPECT_THAT(log, Not(HasSubstr("differently")));
    EXPECT_EQ(numbers, numbers_in(log_of(4, layout)));
    EXPECT_EQ(std::ranges::count(numbers, '\n'), 4);
  }
}

TEST(PeerRecomputation, ADifferenceStopsTheRunOrWarns) {
  const TemporaryFolder folder;
  std::vector<std::string> flags{"--check-microbatch-across-dp-replicas-interval", "2", "--save",
                                 folder.path().string()};
  std::string log = log_of(2, flags, 1, 17);
  EXPECT_THAT(log,
              HasSubstr("rank 0: iteration 2: two replicas computed a microbatch differently "));
  EXPECT_THAT(log, HasSubstr("the first microbatch of rank 1 ("));
  EXPECT_THAT(log, HasSubstr("to replay it with a trace of every op: megatron replay "));
  EXPECT_EQ(std::ranges::count(numbers_in(log), '\n'), 1) << "iteration 2 is not applied";
  flags.resize(2);
  flags.insert(flags.end(), {"--check-microbatch-across-dp-replicas-action", "warn"});
  log = log_of(2, flags, 1, 0);
  EXPECT_THAT(log, HasSubstr("WARNING: rank 0: iteration 4: two replicas computed"));
  EXPECT_EQ(std::ranges::count(numbers_in(log), '\n'), 4);
}

TEST(PeerRecomputation, WhatReplicasShareIsRefused) {
  const auto error = [](std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--check-microbatch-across-dp-replicas-interval", "2"});
    return message_of([&] { log_of(2, flags); });
  };
  EXPECT_THAT(error({"--zero-stage", "2"}), HasSubstr("excludes --zero-stage 2"));
  EXPECT_THAT(log_of(1, {"--check-microbatch-across-dp-replicas-interval", "2"}),
              HasSubstr("checks nothing: there is one replica"));
}

}  // namespace
}  // namespace megatron
