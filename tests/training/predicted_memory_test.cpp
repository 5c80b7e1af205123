// The planner's predictions against what a run holds.
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include "megatron/planner/activation_memory.h"
#include "megatron/planner/rank_memory.h"
#include "megatron/training/observability/memory_breakdown.h"
#include "megatron/training/observability/tensor_memory.h"
#include "small_run.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

void expect_predicted(const std::vector<std::string>& flags) {
  std::ostringstream out;
  const Trainer trainer = set_up(read_run(small_run::flags(flags)), out);
  const TrainingPlan& plan = trainer.plan;
  const ModelMemory held = model_memory(*trainer.state.weights, trainer.state.optimizer.get());
  const RankMemory predicted =
      predict_rank_memory(plan.settings, *plan.family, plan.rank, plan.pipeline.layout(), 2);
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
  flags.insert(flags.end(), {"--hidden-size", "128", "--num-attention-heads", "4", "--seq-length",
                             "64", "--num-layers", std::to_string(num_layers)});
  std::ostringstream out;
  const Trainer trainer = set_up(read_run(small_run::flags(flags)), out);
  const Microbatch batch = patterned_batch(2, 64, 64);
  trainer.state.weights->zero_gradients();
  const double before = tensor_memory(c10::kCPU).allocated_bytes;
  const StepOutput output = trainer.state.model->forward_step(batch, /*training=*/true);
  const Settings& settings = trainer.plan.settings;
  predicted = 0;
  for (std::int64_t layer = 0; layer < num_layers; ++layer)
    predicted += layer_activation_bytes(
        settings.model, layer,
        {.tokens = 128, .element_bytes = settings.training.bf16 ? 2.0 : 4.0});
  return tensor_memory(c10::kCPU).allocated_bytes - before;
}

/// Compares models of 6 and 2 layers, so that what embedding and output keep cancels.
void expect_layers_keep(const std::vector<std::string>& flags) {
  double predicted_6 = 0, predicted_2 = 0;
  kept_bytes(2, flags, predicted_2);  // allocates what later passes reuse
  const double held = kept_bytes(6, flags, predicted_6) - kept_bytes(2, flags, predicted_2);
  EXPECT_NEAR((predicted_6 - predicted_2) / held, 1, 0.001) << "held " << held;
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

}  // namespace
}  // namespace megatron
