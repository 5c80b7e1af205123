// Injects a non-finite value into a layer with experts; the error must name the router or the
// experts of that layer, and the sample. No value is hidden because its expert is not chosen.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "megatron/config/moe_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/resilience/diagnosis/explanation.h"
#include "megatron/training/resilience/diagnosis/op_trace.h"
#include "megatron/training/resilience/non_finite.h"
#include "support/gpt_model.h"
#include "support/train_step.h"
#include "training/fake_model.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TransformerConfig two_layers_with_experts() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 8;
  config.num_attention_heads = config.num_query_groups = 2;
  config.ffn_hidden_size = 16;
  config.max_position_embeddings = 4;
  config.vocab_size = 10;
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  config.moe.ffn_hidden_size = 8;
  resolve(config);
  return config;
}

/// Two samples of four positions. Only sample 1 holds token 7, at position 2.
Microbatch two_samples() {
  Microbatch microbatch;
  const auto row = [](std::int64_t first) { return at::arange(first, first + 8).view({2, 4}); };
  microbatch.tensors["tokens"] = row(1);
  microbatch.tensors["labels"] = row(2);
  microbatch.tensors["position_ids"] = at::arange(4).repeat({2, 1});
  microbatch.tensors["loss_mask"] = at::ones({2, 4});
  microbatch.sample_ordinals = at::tensor({40, 41}, at::kLong);
  return microbatch;
}

struct TinyRun {
  explicit TinyRun(TransformerConfig given = two_layers_with_experts())
      : model(make_gpt_model(given, Rank{})), weights(declared_parameters(*model), {}) {
    weights.initialize(1);
  }
  at::Tensor weight(const std::string& name) { return weights.find(name)->value(); }
  FirstBadOp first_bad() {
    const OpTrace found = trace_microbatch(*model, weights, two_samples());
    text = explain(found, weights, two_samples());
    return found.first_bad.value_or(FirstBadOp{.op = "none"});
  }
  /// Returns the message of a training step.
  std::string step() {
    testing_models::FakeOptimizer optimizer(weights);
    Timers timers(0, TimerStatistic::minmax);
    PipelinePlan pipeline;
    testing_models::ListSource source({two_samples()});
    try {
      train_step({*model, weights, optimizer, source, timers, Rank(), pipeline},
                 {.num_microbatches = 1, .check_for_nan = true});
      return "no error";
    } catch (const NonFiniteError& error) {
      return error.what();
    }
  }

  std::unique_ptr<Model> model;
  ParamStore weights;
  std::string text;
};

TEST(OpTraceOfExperts, NamesARouterWithANanWeight) {
  for (const RouterScore score :
       {RouterScore::softmax, RouterScore::sigmoid, RouterScore::sqrtsoftplus}) {
    TransformerConfig config = two_layers_with_experts();
    config.moe.router_score_function = score;
    TinyRun run(config);
    run.weight("decoder.layers.1.mlp.router.weight")[6][3].fill_(kNan);
    const FirstBadOp bad = run.first_bad();
    EXPECT_EQ(bad.op, "decoder.layers.1.mlp.router");
    EXPECT_EQ(bad.pass, FirstBadOp::Pass::forward);
    EXPECT_THAT(bad.samples, ElementsAre(0, 1));
    EXPECT_THAT(run.text, HasSubstr("decoder.layers.1.mlp.router.weight holds 1 NaN among 64 "
                                    "elements, the first at [6, 3]"));
    EXPECT_THAT(run.step(), HasSubstr("decoder.layers.1.mlp.router"));
  }
}

/// The norm of token 7 is √7 in channel 3, and no other token's is near that.
TEST(OpTraceOfExperts, NamesTheSampleWhoseLogitsOverflow) {
  TinyRun run;
  run.weight("embedding.word_embeddings.weight")[7][3].fill_(1e3);
  run.weight("decoder.layers.0.mlp.router.weight").select(1, 3).fill_(1.4e38);
  const FirstBadOp bad = run.first_bad();
  EXPECT_EQ(bad.op, "decoder.layers.0.mlp.router");
  EXPECT_THAT(bad.samples, ElementsAre(1));
  EXPECT_THAT(run.text, HasSubstr("in sample 41 of the training order"));
  EXPECT_THAT(run.step(), HasSubstr("decoder.layers.0.mlp.router"));
}

TEST(OpTraceOfExperts, NamesTheExpertsWithANanWeight) {
  TinyRun run;
  const std::string fc2 = "decoder.layers.0.mlp.experts.linear_fc2.weight";
  run.weight(fc2).select(2, 5).fill_(kNan);
  const FirstBadOp bad = run.first_bad();
  EXPECT_EQ(bad.op, "decoder.layers.0.mlp.experts");
  EXPECT_THAT(run.text,
              HasSubstr(fc2 + " holds 64 NaN among 512 elements, the first at [0, 0, 5]"));
  EXPECT_THAT(run.step(), HasSubstr("decoder.layers.0.mlp.experts"));
}

}  // namespace
}  // namespace megatron
