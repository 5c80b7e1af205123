// Layers whose weights are packed for inference give the bits that they give unpacked, for any
// number of rows: linear layers, experts and the output layer, tied or not.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/embedding.h"
#include "megatron/nn/forward_context.h"
#include "megatron/nn/head.h"
#include "megatron/nn/mlp.h"
#include "megatron/nn/moe/moe_layer.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

TransformerConfig small_config() {
  TransformerConfig config;
  config.num_layers = 1;
  config.hidden_size = 96;
  config.vocab_size = 75;
  config.num_attention_heads = config.num_query_groups = 2;
  config.kv_channels = 48;
  config.ffn_hidden_size = 160;
  config.activation = Activation::silu;
  config.gated_linear_unit = true;
  config.init_method_std = 0.2;
  config.moe.num_experts = 4;
  config.moe.router_topk = 2;
  config.moe.ffn_hidden_size = 64;
  return config;
}

ParameterSpec tied_spec(const TransformerConfig& config) {
  ParameterSpec spec = output_weight_spec(config, /*vocab_pad_multiple=*/64);
  spec.tags.packing = WeightPacking::copy;
  return spec;
}

struct Layers {
  explicit Layers(at::ScalarType type)
      : mlp(&root, "mlp", {.config = config, .rank = rank}),
        moe(&root, "moe", {.config = config, .rank = rank, .has_input_norm = false}),
        output(&root, "output", output_weight_spec(config, /*vocab_pad_multiple=*/64), rank.tp),
        tied(&root, "tied", tied_spec(config), rank.tp),
        store(declared_parameters(root), {.dtype = type, .with_gradients = false}) {
    store.initialize(5);
  }

  /// Returns what all layers make of rows [s, 1, h].
  std::vector<at::Tensor> forward(const at::Tensor& rows) {
    std::vector<at::Tensor> results{mlp.forward(rows, {}), moe.forward(rows, {})};
    for (Parameter* weight : {&output.parameter, &tied.parameter}) {
      const OutputHead head(config, rank, OutputWeights(*weight));
      results.push_back(head.logits(rows));
      Microbatch microbatch;
      microbatch.tensors = {{"labels", at::zeros({1, rows.size(0)}, at::kLong)},
                            {"loss_mask", at::ones({1, rows.size(0)})}};
      results.push_back(head.loss(rows, microbatch, {}, {}).token_losses);
    }
    return results;
  }

  Rank rank;
  TransformerConfig config = small_config();
  BareModule root;
  Mlp mlp;
  MoeLayer moe;
  ParameterModule output, tied;
  ParamStore store;
};

bool is_packed(const Parameter& parameter) { return parameter.gemm_weight().packed_rows > 0; }

TEST(PackedWeights, ChangeNoBitOfALayer) {
  const at::NoGradGuard no_grad;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Layers layers(type);
    for (const std::int64_t rows : {1, 2, 7, 33, 130}) {
      const at::Tensor x = random_input({rows, 1, layers.config.hidden_size}, 1.5).to(type);
      const std::vector<at::Tensor> expected = layers.forward(x);
      std::vector<at::Tensor> before;
      for (Parameter* parameter : layers.store.parameters()) {
        before.push_back(parameter->value().clone());
        parameter->pack();
      }
      const std::vector<at::Tensor> packed = layers.forward(x);
      for (std::size_t i = 0; i < packed.size(); ++i)
        EXPECT_TRUE(at::equal(packed[i], expected[i])) << "result " << i << ", " << rows << " rows";
      for (std::size_t i = 0; i < before.size(); ++i) {
        Parameter& parameter = *layers.store.parameters()[i];
        parameter.release_packed();
        at::Tensor(parameter.value()).copy_(before[i]);
      }
    }
  }
}

TEST(PackedWeights, AreThoseOfGemms) {
  const at::NoGradGuard no_grad;
  if (!uses_own_gemm(at::kFloat)) GTEST_SKIP() << "the library multiplies float32 on this CPU";
  Layers layers(at::kFloat);
  for (Parameter* parameter : layers.store.parameters()) parameter->pack();
  for (const char* name :
       {"mlp.linear_fc1.weight", "mlp.linear_fc2.weight", "moe.experts.linear_fc1.weight",
        "moe.experts.linear_fc2.weight", "output.weight"}) {
    Parameter* const parameter = layers.store.find(name);
    ASSERT_NE(parameter, nullptr) << name;
    EXPECT_TRUE(is_packed(*parameter)) << name;
    EXPECT_THROW(parameter->value(), InternalError) << name;
  }
  EXPECT_TRUE(is_packed(layers.tied.parameter));
  EXPECT_NO_THROW(layers.tied.parameter.value()) << "tokens read tied weights";
  EXPECT_FALSE(is_packed(*layers.store.find("moe.router.weight")));
  EXPECT_FALSE(is_packed(*layers.store.find("mlp.linear_fc1.layer_norm_weight")));
}

}  // namespace
}  // namespace megatron
