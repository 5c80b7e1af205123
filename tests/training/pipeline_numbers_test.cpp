// Checks that every reported number covers the whole model, whichever stages a rank holds: it
// equals that of a single rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "megatron/base/files.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/optimizer/replica_check.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/training/step/train_step.h"
#include "support/temporary_folder.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using Words = std::vector<std::string>;

const Words kUntied{"--untie-embeddings-and-output-weights"};
const Words kTwoStages{"--pipeline-model-parallel-size", "2"};
const Words kVStages{"--num-layers",        "4",   "--pipeline-model-parallel-size", "2",
                     "--pipeline-schedule", "zb-v"};
/// A stage with only the embedding, and an empty stage.
const Words kEmptyStages{"--pipeline-model-parallel-size", "4", "--pipeline-model-parallel-layout",
                         "E||t|tL"};
const Words kDistributed{"--use-distributed-optimizer", "--overlap-grad-reduce",
                         "--overlap-param-gather"};

Words joined(Words left, const Words& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

/// Calls use(trainer, log) on every rank of a small run.
void on_ranks(std::int64_t world_size, const Words& flags,
              const std::function<void(Trainer&, std::ostringstream&)>& use) {
  const RunConfig run = read_run(small_run::flags(flags), world_size);
  run_rank_threads(world_size,
                   [&](Communicators& communicators) {
                     std::ostringstream log;
                     Trainer trainer = set_up(
                         run, log, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
                     use(trainer, log);
                   },
                   {.timeout = std::chrono::seconds(20)});
}

class PipelineNumbers : public testing::Test {
 protected:
  /// Returns the metrics lines of a run of two steps; the first line is the run record.
  std::vector<Json> metrics(std::int64_t world_size, const Words& flags) {
    const std::string folder = root_ / std::to_string(num_runs_++);
    on_ranks(world_size,
             joined(flags, {"--train-iters", "2", "--eval-iters", "0", "--lr-warmup-iters", "0",
                            "--log-params-norm", "--log-num-zeros-in-grad",
                            "--log-layer-norms-interval", "1", "--tensorboard-dir", folder}),
             [](Trainer& trainer, std::ostringstream& log) { EXPECT_EQ(train(trainer, log), 0); });
    std::vector<Json> lines;
    std::istringstream text(read_file(folder + "/metrics.jsonl"));
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }

  const TemporaryFolder temporary_;
  const fs::path root_ = temporary_.path();
  int num_runs_ = 0;
};

/// Expects the same names, and values equal within a relative `tolerance`.
void expect_same(const Json& actual, const Json& expected, double tolerance,
                 const std::string& what) {
  ASSERT_EQ(actual.type(), expected.type()) << what;
  if (expected.is_object()) {
    ASSERT_EQ(actual.size(), expected.size()) << what << ": " << actual << "\n" << expected;
    for (const auto& [name, value] : expected.items()) {
      ASSERT_TRUE(actual.contains(name)) << what << " " << name;
      expect_same(actual.at(name), value, tolerance, what + " " + name);
    }
  } else if (tolerance > 0 && expected.is_number_float()) {
    EXPECT_NEAR(actual.get<double>(), expected.get<double>(),
                tolerance * std::abs(expected.get<double>()))
        << what;
  } else {
    EXPECT_EQ(actual, expected) << what;
  }
}

struct Comparison {
  double tolerance = 0;
  std::size_t num_steps = 2;
  Words names{"lm loss", "grad_norm", "params_norm", "loss_scale", "layer_norms", "num_zeros"};
};

void expect_same_numbers(const std::vector<Json>& actual, const std::vector<Json>& expected,
                         const Comparison& comparison, const std::string& what) {
  ASSERT_EQ(actual.size(), 3u) << what;
  ASSERT_EQ(expected.size(), 3u) << what;
  EXPECT_EQ(actual[0].at("run").at("parameters"), expected[0].at("run").at("parameters")) << what;
  for (std::size_t step = 1; step <= comparison.num_steps; ++step) {
    for (const std::string& name : comparison.names)
      expect_same(actual[step].at(name), expected[step].at(name), comparison.tolerance,
                  what + " step " + std::to_string(step) + " " + name);
  }
}

TEST_F(PipelineNumbers, OfUntiedStagesHaveTheBitsOfOneRank) {
  const std::vector<Json> expected = metrics(1, kUntied);
  EXPECT_THAT(expected[1].at("layer_norms").at("activation_rms"), testing::SizeIs(4))
      << "embedding, two layers, final norm";
  EXPECT_GT(expected[1].at("num_zeros").get<std::int64_t>(), 0)
      << "rows of words that no sample holds";
  expect_same_numbers(metrics(2, joined(kUntied, kTwoStages)), expected, {}, "two stages");
  expect_same_numbers(metrics(4, joined(kUntied, kEmptyStages)), expected, {},
                      "a stage of nothing");
  const Words four_layers = joined(kUntied, {"--num-layers", "4"});
  expect_same_numbers(metrics(2, joined(kUntied, kVStages)), metrics(1, four_layers), {}, "V");
}

/// Allows rounding, because the gradient of a shared weight is summed in parts. Single gradients
/// may be zero by chance, which changes how far a weight moves.
const Comparison kShared{
    .tolerance = 1e-5,
    .num_steps = 2,
    .names = {"lm loss", "grad_norm", "params_norm", "loss_scale", "layer_norms"}};

TEST_F(PipelineNumbers, CountWeightsThatTwoStagesShareOnce) {
  const std::vector<Json> expected = metrics(1, {});
  expect_same_numbers(metrics(2, kTwoStages), expected, kShared, "two stages");
  expect_same_numbers(metrics(4, joined(kTwoStages, {"--tensor-model-parallel-size", "2"})),
                      expected, kShared, "two stages of two shards");
  expect_same_numbers(metrics(4, kEmptyStages), expected, kShared, "a stage of nothing");
  // Activations come from the last microbatches, which hold different samples with two replicas.
  expect_same_numbers(metrics(4, joined(kTwoStages, kDistributed)), metrics(2, kDistributed),
                      kShared, "two stages of two replicas");
  const Comparison rounded{
      .tolerance = 2e-3, .num_steps = 1, .names = {"lm loss", "grad_norm", "params_norm"}};
  expect_same_numbers(metrics(4, joined(joined(kTwoStages, kDistributed), {"--bf16"})),
                      metrics(1, {"--bf16"}), rounded, "bf16");
}

/// The scores of all heads, of all ranks and samples, decide what is clipped.
TEST_F(PipelineNumbers, OfClippedScoresAreThoseOfOneRank) {
  const Words clip{"--qk-clip", "--qk-clip-threshold", "0.001", "--log-max-attention-logit"},
      untied = joined(kUntied, clip), groups{"--group-query-attention", "--num-query-groups", "1"},
      latents{"--multi-latent-attention",
              "--kv-lora-rank",
              "12",
              "--qk-head-dim",
              "8",
              "--qk-pos-emb-head-dim",
              "4",
              "--v-head-dim",
              "8"};
  Comparison comparison{.tolerance = 0, .names = {"lm loss", "params_norm", "max_attention_logit"}};
  for (const Words& model : {untied, joined(untied, groups), joined(untied, latents)}) {
    const std::vector<Json> expected = metrics(1, model);
    EXPECT_LT(expected[2].at("max_attention_logit").get<double>(),
              0.5 * expected[1].at("max_attention_logit").get<double>());
    comparison.tolerance = 0;
    expect_same_numbers(metrics(2, joined(model, kTwoStages)), expected, comparison, "two stages");
    comparison.tolerance = 1e-4;
    expect_same_numbers(metrics(2, joined(model, {"--tensor-model-parallel-size", "2"})), expected,
                        comparison, "two shards");
    expect_same_numbers(metrics(2, joined(model, kDistributed)), expected, comparison,
                        "two replicas");
  }
}

TrainStepContext parts_of(Trainer& trainer) {
  return {*trainer.state.model, *trainer.state.weights, *trainer.state.optimizer,
          *trainer.data.train,  trainer.timers,         trainer.plan.rank,
          trainer.plan.pipeline};
}

TEST_F(PipelineNumbers, CountZerosOfSharedWeightsOnce) {
  const auto zeros = [](std::int64_t world_size, const Words& flags) {
    std::int64_t count = 0;
    on_ranks(world_size, flags, [&](Trainer& trainer, std::ostringstream&) {
      const TrainStepOptions options{.iteration = 1,
                                     .num_microbatches = trainer.state.batch.num_microbatches,
                                     .update = {.count_zeros = true}};
      const StepLosses losses = forward_backward(parts_of(trainer), options,
                                                 fetch_microbatches(parts_of(trainer), options));
      for (const ParamBucket& bucket : trainer.state.weights->buckets())
        at::Tensor(bucket.grad).zero_();
      update_weights(parts_of(trainer), options, losses);
      const TrainStepResult result = read_step(parts_of(trainer), options, losses);
      if (trainer.plan.rank.index == 0) count = result.update.num_zeros;
    });
    return count;
  };
  const std::int64_t expected = zeros(1, {});
  EXPECT_EQ(zeros(2, kTwoStages), expected);
  EXPECT_EQ(zeros(4, joined(kTwoStages, kDistributed)), expected);
}

/// Counts the forwards that know the loss gradient.
class AnnouncementProbe : public Model {
 public:
  explicit AnnouncementProbe(Model& model) : Model(nullptr, ""), model_(model) {}
  const TransformerConfig& config() const override { return model_.config(); }
  std::vector<ActivationSpec> input_specs(std::int64_t chunk, const Pass& pass) const override {
    return model_.input_specs(chunk, pass);
  }
  std::vector<ActivationSpec> output_specs(std::int64_t chunk, const Pass& pass) const override {
    return model_.output_specs(chunk, pass);
  }
  StageOutput forward_chunk(std::int64_t chunk, const Pass& pass, const Activations& in) override {
    num_announced += pass.microbatch.has("loss_gradient") ? 1 : 0;
    return model_.forward_chunk(chunk, pass, in);
  }

  int num_announced = 0;

 private:
  Model& model_;
};

/// A loss whose gradient is announced keeps the gradient of its logits until its backward. With
/// GPipe that would be one for each microbatch of the step.
TEST_F(PipelineNumbers, LossGradientsAreAnnouncedWhereBackwardFollowsSoon) {
  for (const auto& [schedule, expected] :
       {std::pair("gpipe", 0), {"1f1b", 4}, {"zb-h1", 4}, {"combined-1f1b", 4}}) {
    on_ranks(
        2, joined(kTwoStages, {"--pipeline-schedule", schedule, "--global-batch-size", "8"}),
        [&](Trainer& trainer, std::ostringstream&) {
          AnnouncementProbe probe(*trainer.state.model);
          const TrainStepContext parts{
              probe,          *trainer.state.weights, *trainer.state.optimizer, *trainer.data.train,
              trainer.timers, trainer.plan.rank,      trainer.plan.pipeline};
          const TrainStepOptions options{.iteration = 1, .num_microbatches = 4};
          forward_backward(parts, options, fetch_microbatches(parts, options));
          EXPECT_EQ(probe.num_announced, expected) << schedule;
        });
  }
}

/// Writes down when the timers of the schedule's steps begin (+) and end (-).
class StepTimerLog : public TimerListener {
 public:
  void on_start(std::string_view timer) override { add("+", timer); }
  void on_stop(std::string_view timer) override { add("-", timer); }
  std::string text;

 private:
  void add(const char* sign, std::string_view timer) {
    if (timer == "forward-compute") text += std::string(sign) + "F";
    if (timer == "backward-compute") text += std::string(sign) + "B";
  }
};

TEST_F(PipelineNumbers, TimersOfJoinedStepsRunForTheWholePair) {
  const Words flags =
      joined(kTwoStages, {"--tensor-model-parallel-size", "2", "--pipeline-schedule",
                          "combined-1f1b", "--global-batch-size", "6"});
  on_ranks(4, flags, [](Trainer& trainer, std::ostringstream&) {
    StepTimerLog log;
    trainer.timers.add_listener(log);
    const TrainStepOptions options{.iteration = 1, .num_microbatches = 3};
    forward_backward(parts_of(trainer), options, fetch_microbatches(parts_of(trainer), options));
    trainer.timers.remove_listener(log);
    EXPECT_EQ(log.text, trainer.plan.rank.pp.rank == 1 ? "+F-F+F+B-B-F+F+B-B-F+B-B"
                                                       : "+F-F+F-F+F-F+B-B+B-B+B-B");
  });
}

/// An infinite gradient on one stage skips the update on all stages, and all lower the loss scale.
TEST_F(PipelineNumbers, OneStagesOverflowSkipsTheStepOnAll) {
  for (const std::int64_t bad : {0, 1}) {
    on_ranks(2, joined(kTwoStages, {"--fp16", "--initial-loss-scale", "1024", "--hysteresis", "1"}),
             [&](Trainer& trainer, std::ostringstream&) {
               const TrainStepContext parts = parts_of(trainer);
               const TrainStepOptions options{.iteration = 1,
                                              .num_microbatches = 2,
                                              .check_for_nan = false,
                                              .update = {.lr = 1e-2}};
               std::vector<at::Tensor> before;
               for (const ParamBucket& bucket : trainer.state.weights->buckets())
                 before.push_back(bucket.value.clone());
               const StepLosses losses =
                   forward_backward(parts, options, fetch_microbatches(parts, options));
               const std::string name =
                   "decoder.layers." + std::to_string(bad) + ".mlp.linear_fc2.weight";
               if (Parameter* parameter = trainer.state.weights->find(name)) {
                 EXPECT_EQ(trainer.plan.rank.pp.rank, bad);
                 at::Tensor(parameter->grad())
                     .view({-1})[3]
                     .fill_(std::numeric_limits<float>::infinity());
               }
               update_weights(parts, options, losses);
               const TrainStepResult result = read_step(parts, options, losses);
               EXPECT_FALSE(result.update.applied) << trainer.plan.rank.index;
               EXPECT_EQ(result.update.non_finite_parameter, name) << trainer.plan.rank.index;
               EXPECT_EQ(trainer.state.optimizer->loss_scale().item<double>(), 512)
                   << trainer.plan.rank.index;
               for (std::size_t i = 0; i < before.size(); ++i)
                 EXPECT_TRUE(trainer.state.weights->buckets()[i].value.equal(before[i]))
                     << trainer.plan.rank.index;
             });
  }
}

TEST_F(PipelineNumbers, ReplicasOfAStageAreCompared) {
  const Words flags =
      joined(kTwoStages, {"--train-iters", "2", "--eval-iters", "0", "--lr-warmup-iters", "0",
                          "--check-weight-hash-across-dp-replicas-interval", "1"});
  on_ranks(4, flags,
           [](Trainer& trainer, std::ostringstream& log) { EXPECT_EQ(train(trainer, log), 0); });
  try {
    on_ranks(4, flags, [](Trainer& trainer, std::ostringstream&) {
      if (trainer.plan.rank.index == 3)
        trainer.state.weights->find("decoder.layers.1.mlp.linear_fc1.weight")
            ->value()
            .view({-1})[5]
            .add_(1e-3);
      check_replicas(*trainer.state.weights);
    });
    ADD_FAILURE() << "not noticed";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("decoder.layers.1.mlp.linear_fc1.weight: ranks 2 and 3 differ, and"));
  }
}

}  // namespace
}  // namespace megatron
