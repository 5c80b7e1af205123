// Checks that the layer is named when activations overflow although every weight is finite.
#include "megatron/training/resilience/non_finite.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"
#include "support/gpt_model.h"
#include "support/train_step.h"
#include "training/fake_model.h"

namespace megatron {
namespace {

TransformerConfig two_layers() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 8;
  config.num_attention_heads = config.num_query_groups = 2;
  config.kv_channels = 4;
  config.ffn_hidden_size = 16;
  config.max_position_embeddings = 4;
  config.vocab_size = 10;
  config.activation = Activation::squared_relu;
  return config;
}

Microbatch ones() {
  Microbatch microbatch;
  for (const char* name : {"tokens", "labels"})
    microbatch.tensors[name] = at::ones({1, 4}, at::kLong);
  microbatch.tensors["position_ids"] = at::arange(4).unsqueeze(0);
  microbatch.tensors["loss_mask"] = at::ones({1, 4});
  return microbatch;
}

TEST(NonFinite, OverflowNamesTheLayer) {
  const auto model = make_gpt_model(two_layers(), Rank{});
  ParamStore weights(declared_parameters(*model), {});
  weights.initialize(1);
  at::Tensor fc1 = weights.find("decoder.layers.1.mlp.linear_fc1.weight")->value();
  fc1.mul_(1e25);
  testing_models::FakeOptimizer optimizer(weights);
  Timers timers(0, TimerStatistic::minmax);
  PipelinePlan pipeline;
  testing_models::ListSource source({ones()});
  try {
    train_step({*model, weights, optimizer, source, timers, Rank(), pipeline},
               {.num_microbatches = 1, .check_for_nan = true});
    FAIL();
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("every weight is finite\n  first op at fault: "
                                                 "decoder.layers.1.mlp.activation, forward\n"));
  }
}

}  // namespace
}  // namespace megatron
