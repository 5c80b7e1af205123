// The planner's predictions against what a run holds.
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "layouts/layout_run.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/planner/layer_trace.h"
#include "megatron/planner/rank_memory.h"
#include "megatron/training/observability/activation_recorder.h"
#include "megatron/training/observability/memory_breakdown.h"
#include "megatron/training/observability/tensor_memory.h"
#include "megatron/training/run/training_plan.h"
#include "small_run.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

/// Runs operators on one thread. A thread keeps its workspace from its first piece of work on,
/// which on a busy machine may come at any time.
class OneThread {
 public:
  OneThread() { at::set_num_threads(1); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;
  ~OneThread() { at::set_num_threads(before_); }

 private:
  const int before_ = at::get_num_threads();
};

void expect_predicted(const std::vector<std::string>& flags) {
  std::ostringstream out;
  const Trainer trainer = set_up(read_run(small_run::flags(flags)), out);
  const TrainingPlan& plan = trainer.plan;
  const ModelMemory held = model_memory(*trainer.state.weights, trainer.state.optimizer.get());
  LayerTraces traces(*plan.family);
  const RankMemory predicted =
      predict_rank_memory(plan.settings, traces, plan.rank, plan.pipeline.layout(), 2);
  EXPECT_EQ(predicted.parameters, held.parameters);
  EXPECT_EQ(predicted.main_parameters, held.main_parameters);
  EXPECT_EQ(predicted.gradients, held.gradients);
  EXPECT_EQ(predicted.optimizer_state, held.optimizer_state);
}

TEST(PredictedMemory, OfWeightsAndOptimizerIsWhatARunHolds) {
  expect_predicted({});
  expect_predicted({"--bf16", "--swiglu", "--normalization", "RMSNorm"});
  expect_predicted({"--optimizer", "sgd", "--untie-embeddings-and-output-weights"});
  expect_predicted({"--bf16", "--use-precision-aware-optimizer", "--exp-avg-dtype", "fp16",
                    "--exp-avg-sq-dtype", "bf16"});
  expect_predicted({"--bf16", "--num-experts", "4", "--moe-ffn-hidden-size", "48",
                    "--moe-layer-freq", "2", "--moe-shared-expert-intermediate-size", "16",
                    "--moe-router-enable-expert-bias", "--moe-router-score-function", "sigmoid"});
}

/// Returns the bytes that `num_layers` layers with these flags keep of a microbatch, and sets
/// `predicted`.
double kept_bytes(std::int64_t num_layers, std::vector<std::string> flags, double& predicted) {
  flags.insert(flags.end(),
               {"--hidden-size", "128", "--num-attention-heads", "4", "--seq-length", "64",
                "--num-workers", "0", "--num-layers", std::to_string(num_layers)});
  std::ostringstream out;
  const Trainer trainer = set_up(read_run(small_run::flags(flags)), out);
  const Microbatch batch = patterned_batch(2, 64, 64);
  trainer.state.weights->zero_gradients();
  const double before = tensor_memory(c10::kCPU).allocated_bytes;
  const StepOutput output = trainer.state.model->forward_step(batch, /*training=*/true);
  const TrainingPlan& plan = trainer.plan;
  Settings settings = plan.settings;
  settings.training->micro_batch_size = 2;
  LayerTraces traces(*plan.family);
  predicted = 0;
  for (std::int64_t layer = 0; layer < num_layers; ++layer)
    predicted += traces.of(settings, plan.rank, layer).kept_bytes();
  return tensor_memory(c10::kCPU).allocated_bytes - before;
}

/// Compares models of 6 and 2 layers, so that what embedding and output keep cancels.
void expect_layers_keep(const std::vector<std::string>& flags, double tolerance = 0.001) {
  const OneThread one_thread;
  double predicted_6 = 0, predicted_2 = 0;
  kept_bytes(2, flags, predicted_2);  // allocates what later passes reuse
  const double held = kept_bytes(6, flags, predicted_6) - kept_bytes(2, flags, predicted_2);
  EXPECT_NEAR((predicted_6 - predicted_2) / held, 1, tolerance) << "held " << held;
}

/// Returns the bytes that the layers of all ranks of cp keep of a microbatch of two sequences of
/// 64, and sets `predicted` to those of one rank.
double kept_bytes_over_cp(std::int64_t num_layers, std::int64_t ranks,
                          std::vector<std::string> flags, double& predicted) {
  flags.insert(flags.end(), {"--hidden-size", "128", "--num-attention-heads", "4", "--seq-length",
                             "64", "--num-workers", "0", "--num-layers", std::to_string(num_layers),
                             "--context-parallel-size", std::to_string(ranks)});
  const RunConfig run = read_run(small_run::flags(flags), ranks);
  double held = 0;
  run_rank_threads(ranks, [&](Communicators& communicators) {
    std::ostringstream out;
    const Trainer trainer =
        set_up(run, out, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    const Rank& rank = trainer.plan.rank;
    trainer.state.weights->zero_gradients();
    const Microbatch batch = context_slice(patterned_batch(2, 64, 64), rank.cp.rank, ranks);
    const auto meet = [&] { all_reduce_(rank.cp, at::ones({1}), "test"); };
    meet();
    if (rank.cp.rank == 0) held -= tensor_memory(c10::kCPU).allocated_bytes;
    meet();
    const StepOutput output = trainer.state.model->forward_step(batch, /*training=*/true);
    meet();
    if (rank.cp.rank != 0) return meet();
    held += tensor_memory(c10::kCPU).allocated_bytes;
    predicted = 0;
    Settings settings = trainer.plan.settings;
    settings.training->micro_batch_size = 2;
    LayerTraces traces(*trainer.plan.family);
    for (std::int64_t layer = 0; layer < num_layers; ++layer)
      predicted += traces.of(settings, rank, layer).kept_bytes();
    meet();
  });
  return held;
}

/// As expect_layers_keep(), with a sequence over several ranks.
void expect_layers_keep_over_cp(std::int64_t ranks, const std::vector<std::string>& flags) {
  double predicted_6 = 0, predicted_2 = 0;
  const double held = kept_bytes_over_cp(6, ranks, flags, predicted_6) -
                      kept_bytes_over_cp(2, ranks, flags, predicted_2);
  EXPECT_NEAR(static_cast<double>(ranks) * (predicted_6 - predicted_2) / held, 1, 0.001)
      << "held " << held << testing::PrintToString(flags);
}

TEST(PredictedMemory, OfActivationsOverCpIsWhatLayersKeep) {
  use_caching_cpu_allocator();
  const std::vector<std::string> llama{"--bf16", "--group-query-attention",   "--num-query-groups",
                                       "2",      "--position-embedding-type", "rope"};
  for (const char* exchange : {"p2p", "all_gather", "a2a"}) {
    expect_layers_keep_over_cp(2, {"--cp-comm-type", exchange});
    std::vector<std::string> flags = llama;
    flags.insert(flags.end(), {"--cp-comm-type", exchange});
    expect_layers_keep_over_cp(4, flags);
    flags.insert(flags.end(), {"--qk-layernorm"});
    expect_layers_keep_over_cp(2, flags);
  }
  expect_layers_keep_over_cp(
      4, {"--cp-comm-type", "a2a+p2p", "--hierarchical-context-parallel-sizes", "2", "2"});
}

TEST(PredictedMemory, OfActivationsOfExpertsIsNearWhatLayersKeep) {
  use_caching_cpu_allocator();
  const std::vector<std::string> experts{
      "--num-experts", "4", "--moe-ffn-hidden-size", "96", "--moe-token-dispatcher-type",
      "alltoall"};
  expect_layers_keep(experts, 0.02);
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), experts.begin(), experts.end());
    return more;
  };
  expect_layers_keep(with({"--bf16", "--swiglu", "--disable-bias-linear"}), 0.02);
  expect_layers_keep(with({"--moe-shared-expert-intermediate-size", "64"}), 0.02);
  expect_layers_keep(with({"--moe-latent-size", "32"}), 0.02);
}

TEST(PredictedMemory, OfActivationsIsWhatLayersKeep) {
  use_caching_cpu_allocator();
  expect_layers_keep({});
  expect_layers_keep({"--bf16", "--disable-bias-linear"});
  expect_layers_keep({"--swiglu", "--normalization", "RMSNorm"});
  expect_layers_keep({"--group-query-attention", "--num-query-groups", "2", "--qk-layernorm"});
  expect_layers_keep({"--bf16", "--group-query-attention", "--num-query-groups", "2",
                      "--position-embedding-type", "rope"});
}

/// Hooks that were installed before a recorder's.
struct CountingHooks : UnitHooks {
  bool observes_ops() const override { return false; }
  void after_forward(const Module& /*unit*/, const at::Tensor& /*output*/) override { ++units; }
  int units = 0;
};

TEST(RecordedActivations, OfEachLayerAreItsTrace) {
  use_caching_cpu_allocator();
  const OneThread one_thread;
  std::ostringstream out;
  Trainer trainer =
      set_up(read_run(small_run::flags({"--hidden-size", "128", "--num-attention-heads", "4",
                                        "--num-layers", "3", "--num-workers", "0", "--bf16"})),
             out);
  CountingHooks counting;
  const UnitHooksScope enclosing(*trainer.state.model, counting);
  ActivationRecorder recorder(*trainer.state.model, *trainer.state.weights);
  layouts::make_step(trainer);
  counting.units = 0;
  recorder.before_step(nullptr);
  layouts::make_step(trainer, &recorder);
  const RecordedActivations recorded = recorder.after_step();
  EXPECT_EQ(counting.units, 2 * 5) << "of two microbatches";
  ASSERT_EQ(recorded.units.size(), 6U) << "embedding, three layers, norm, loss and messages";
  const double layer = LayerTraces(*trainer.plan.family)
                           .of(trainer.plan.settings, trainer.plan.rank, 0)
                           .kept_bytes();
  double sum = 0;
  for (const UnitActivations& unit : recorded.units) {
    sum += unit.bytes;
    if (unit.kind == "dense layer") {
      EXPECT_NEAR(unit.bytes / layer, 1, 0.01) << unit.name << ": rounded up to cache lines";
    }
  }
  EXPECT_EQ(sum, recorded.peak);
}

/// Compares the most that tensors hold in a step with the predicted total. The few percent between
/// them are statistics of rows, blocks of partial sums, and small tensors of the step.
void expect_peak(std::vector<std::string> flags) {
  const OneThread one_thread;
  flags.insert(flags.end(),
               {"--seq-length", "2048", "--max-position-embeddings", "2048", "--num-workers", "0",
                "--hidden-dropout", "0", "--attention-dropout", "0"});
  const double before = tensor_memory(c10::kCPU).allocated_bytes;
  std::ostringstream out;
  Trainer trainer = set_up(read_run(small_run::flags(flags)), out);
  layouts::make_step(trainer);
  reset_peak_tensor_memory(c10::kCPU);
  layouts::make_step(trainer);
  const double held = tensor_memory(c10::kCPU).peak_bytes - before;
  const TrainingPlan& plan = trainer.plan;
  LayerTraces traces(*plan.family);
  const RankMemory predicted =
      predict_rank_memory(plan.settings, traces, plan.rank, plan.pipeline.layout(),
                          trainer.state.batch.num_microbatches);
  EXPECT_NEAR(predicted.total() / held, 1, 0.05)
      << "held " << held << ", predicted " << predicted.activations << " + " << predicted.buffers
      << testing::PrintToString(flags);
}

TEST(PredictedMemory, OfAStepIsItsPeak) {
  use_caching_cpu_allocator();
  const std::vector<std::string> wide{"--hidden-size", "128", "--num-attention-heads", "2"};
  const auto with = [&](const std::vector<std::string>& more) {
    std::vector<std::string> flags = wide;
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  expect_peak(with({}));
  expect_peak(with({"--num-layers", "1", "--position-embedding-type", "rope"}));
  expect_peak(with({"--num-layers", "1", "--bf16"}));
  expect_peak(with({"--bf16", "--swiglu", "--normalization", "RMSNorm", "--disable-bias-linear",
                    "--num-attention-heads", "8", "--group-query-attention", "--num-query-groups",
                    "2", "--position-embedding-type", "rope"}));
}

// Full recomputation keeps the inputs of the layers and, in backward, the activations of one.
TEST(PredictedMemory, OfAStepThatRecomputesIsItsPeak) {
  use_caching_cpu_allocator();
  const std::vector<std::string> model{"--hidden-size", "128", "--num-attention-heads", "2",
                                       "--num-layers",  "4"};
  for (const std::vector<std::string>& recompute :
       {std::vector<std::string>{"--recompute-granularity", "full"},
        {"--recompute-granularity", "full", "--recompute-method", "uniform",
         "--recompute-num-layers", "2"},
        {"--recompute-granularity", "selective", "--recompute-modules", "layernorm", "mlp"}}) {
    for (const char* type : {"", "--bf16"}) {
      std::vector<std::string> flags = model;
      flags.insert(flags.end(), recompute.begin(), recompute.end());
      if (*type != '\0') flags.emplace_back(type);
      expect_peak(flags);
    }
  }
}

}  // namespace
}  // namespace megatron
