// Checks that a non-finite value in one pipeline stage is traced to its op, although it spreads to
// all later stages, and that every rank reports the same.
#include <ATen/core/Tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <ostream>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/training/resilience/diagnosis/explanation.h"
#include "megatron/training/resilience/diagnosis/op_trace.h"
#include "megatron/training/resilience/reruns/guarded_step.h"
#include "megatron/training/run/training_plan.h"
#include "support/gpt_model.h"
#include "support/temporary_folder.h"
#include "support/tiny_gpt.h"
#include "training/small_run.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using enum FirstBadOp::Pass;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Change = std::function<void(const std::string& name, at::Tensor weight)>;

struct Traced {
  std::map<std::int64_t, FirstBadOp> blamed;  ///< by rank
  std::map<std::int64_t, std::string> texts;
  std::vector<OpTrace> traces;
};

PipelineLayout four_layers(ChunkOrder order, std::int64_t num_chunks) {
  PipelineLayout layout{.num_ranks = 2, .num_chunks = num_chunks, .order = order, .stages = {}};
  const std::int64_t stages = 2 * num_chunks, layers = 4 / stages;
  for (std::int64_t i = 0; i < stages; ++i)
    layout.stages.push_back({.first_layer = i * layers,
                             .num_layers = layers,
                             .has_embedding = i == 0,
                             .has_output = i == stages - 1});
  return layout;
}

/// Four layers on two ranks with modified weights; traces one microbatch.
Traced trace_changed(const PipelineLayout& layout, const Change& change,
                     double gradient_factor = 1) {
  TransformerConfig config = tiny_gpt();
  config.num_layers = 4;
  config.activation = Activation::squared_relu;
  config.untie_embeddings_and_output_weights = true;
  const Microbatch microbatch = patterned_batch(2, 8, config.vocab_size);
  Traced result;
  result.traces.resize(2);
  std::mutex mutex;
  const auto body = [&](Communicators& communicators) {
    Rank rank;
    rank.index = communicators.rank();
    rank.pp = {
        .name = "pp", .rank = rank.index, .size = 2, .comm = communicators.group({0, 1}, "pp")};
    const auto model =
        make_gpt_model(config, rank, MakeModelOptions{.vocab_pad_multiple = 8, .layout = &layout});
    ParamStore weights(declared_parameters(*model), {});
    weights.initialize(1);
    for (const Parameter* parameter : weights.parameters())
      change(parameter->name(), parameter->value());
    const OpTrace trace = trace_microbatch(
        *model, weights, microbatch,
        {.gradient_factor = gradient_factor,
         .pp = &rank.pp,
         .order = layout.order,
         .all_reduce_min = [&](double place) {
           return -all_reduce_max({rank.pp, rank.device}, {-place}, "diagnosis")[0];
         }});
    const std::lock_guard lock(mutex);
    result.traces[static_cast<std::size_t>(rank.index)] = trace;
    if (!trace.first_bad) return;
    result.blamed[rank.index] = *trace.first_bad;
    result.texts[rank.index] = explain(trace, weights, microbatch);
  };
  run_rank_threads(2, body, {.timeout = std::chrono::seconds(20)});
  return result;
}

Change spoil(const std::string& spoilt) {
  return [spoilt](const std::string& name, at::Tensor weight) {
    if (name == spoilt) weight.view({-1})[3].fill_(kNan);
  };
}

struct Expected {
  std::string weight, op;
  std::int64_t rank;
};

void expect_blamed(const PipelineLayout& layout, const Expected& expected) {
  SCOPED_TRACE(expected.weight);
  const Traced traced = trace_changed(layout, spoil(expected.weight));
  ASSERT_EQ(traced.blamed.size(), 1U);
  ASSERT_EQ(traced.blamed.begin()->first, expected.rank);
  EXPECT_EQ(traced.blamed.begin()->second.op, expected.op);
  EXPECT_EQ(traced.blamed.begin()->second.pass, forward);
}

TEST(PipelineDiagnosis, NamesTheFirstStageAtFault) {
  const PipelineLayout layout = four_layers(ChunkOrder::loop, 1);
  expect_blamed(layout, {"embedding.word_embeddings.weight", "embedding.word_embeddings", 0});
  expect_blamed(layout,
                {"decoder.layers.1.mlp.linear_fc2.weight", "decoder.layers.1.mlp.linear_fc2", 0});
  expect_blamed(layout,
                {"decoder.layers.2.mlp.linear_fc1.weight", "decoder.layers.2.mlp.linear_fc1", 1});
  expect_blamed(layout, {"output_layer.weight", "loss", 1});
}

TEST(PipelineDiagnosis, NamesTheFirstOfSeveralChunks) {
  const PipelineLayout loop = four_layers(ChunkOrder::loop, 2), v = four_layers(ChunkOrder::v, 2);
  expect_blamed(loop,
                {"decoder.layers.1.mlp.linear_fc2.weight", "decoder.layers.1.mlp.linear_fc2", 1});
  expect_blamed(loop,
                {"decoder.layers.2.mlp.linear_fc2.weight", "decoder.layers.2.mlp.linear_fc2", 0});
  expect_blamed(v,
                {"decoder.layers.2.mlp.linear_fc2.weight", "decoder.layers.2.mlp.linear_fc2", 1});
  expect_blamed(v,
                {"decoder.layers.3.mlp.linear_fc2.weight", "decoder.layers.3.mlp.linear_fc2", 0});
}

TEST(PipelineDiagnosis, SaysWhereTheInputOfAStageCameFrom) {
  const Traced traced =
      trace_changed(four_layers(ChunkOrder::loop, 1),
                    spoil("decoder.layers.2.self_attention.linear_qkv.layer_norm_weight"));
  ASSERT_EQ(traced.texts.size(), 1U);
  EXPECT_THAT(
      traced.texts.at(1),
      HasSubstr(
          "first op at fault: decoder.layers.2.self_attention.linear_qkv.layer_norm, forward"));
  EXPECT_THAT(traced.texts.at(1),
              HasSubstr("its input came from the previous stage, where every output was finite"));
}

TEST(PipelineDiagnosis, AHealthyMicrobatchHasItsGradientsOnEveryStage) {
  const Traced traced =
      trace_changed(four_layers(ChunkOrder::loop, 1), [](const std::string&, at::Tensor) {});
  EXPECT_TRUE(traced.blamed.empty());
  for (const OpTrace& trace : traced.traces) {
    EXPECT_FALSE(trace.ops.empty());
    EXPECT_GT(trace.loss_sum, 0);
    EXPECT_EQ(trace.tokens, 16);
    EXPECT_EQ(trace.gradient_scale, 1.0 / 16);
    for (const OpRecord& record : trace.ops) EXPECT_TRUE(record.gradient) << record.op;
  }
}

/// fc2's weight gradient is activationᵀ·gradient: it overflows float in the backward of the second
/// stage, whose output stays finite.
TEST(PipelineDiagnosis, NamesTheStageWhoseBackwardOverflows) {
  const auto change = [](const std::string& name, at::Tensor weight) {
    if (name == "decoder.layers.2.mlp.linear_fc1.weight") weight.mul_(1e17);
    if (name == "decoder.layers.2.mlp.linear_fc2.weight") weight.mul_(1e-34);
  };
  const Traced traced = trace_changed(four_layers(ChunkOrder::loop, 1), change, 1e12);
  ASSERT_EQ(traced.blamed.size(), 1U);
  EXPECT_EQ(traced.blamed.at(1).pass, backward);
  EXPECT_EQ(traced.blamed.at(1).what, "gradient of decoder.layers.2.mlp.linear_fc2.weight");
}

/// Returns the messages of all ranks (two stages of one layer) after a step in which weight `name`
/// holds a NaN.
std::vector<std::string> messages_of_run(const std::string& name) {
  const TemporaryFolder folder;
  const RunConfig run =
      read_run(small_run::flags({"--pipeline-model-parallel-size", "2", "--save",
                                 folder.path().string(), "--rerun-mode", "disabled"}),
               2);
  std::vector<std::string> messages(2);
  const auto body = [&](Communicators& communicators) {
    std::ostream silent(nullptr);
    Trainer trainer =
        set_up(run, silent, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    if (const Parameter* spoilt = trainer.state.weights->find(name))
      at::Tensor(spoilt->value()).view({-1})[3].fill_(kNan);
    trainer.state.batch = trainer.plan.batches.at(0);
    GuardedStep step(trainer.plan, trainer.state, silent);
    try {
      step.run({*trainer.state.model, *trainer.state.weights, *trainer.state.optimizer,
                *trainer.data.train, trainer.timers, trainer.plan.rank, trainer.plan.pipeline},
               {.iteration = 1, .num_microbatches = trainer.state.batch.num_microbatches});
    } catch (const NonFiniteError& error) {
      messages[static_cast<std::size_t>(communicators.rank())] = error.what();
    }
  };
  run_rank_threads(2, body, {.timeout = std::chrono::seconds(20)});
  return messages;
}

TEST(PipelineDiagnosis, EveryRankSaysTheSame) {
  for (const std::int64_t layer : {0, 1}) {
    const std::string op = "decoder.layers." + std::to_string(layer) + ".mlp.linear_fc2";
    const std::vector<std::string> messages = messages_of_run(op + ".weight");
    EXPECT_EQ(messages[0], messages[1]);
    EXPECT_THAT(messages[0], testing::StartsWith("rank " + std::to_string(layer) +
                                                 ": iteration 1: the loss of microbatch 1 of 2"));
    EXPECT_THAT(messages[0], HasSubstr("first op at fault: " + op + ", forward"));
    EXPECT_THAT(messages[0], HasSubstr("its parameter " + op + ".weight holds 1 NaN"));
    EXPECT_THAT(messages[0], HasSubstr("the microbatch is saved"));
  }
}

}  // namespace
}  // namespace megatron
