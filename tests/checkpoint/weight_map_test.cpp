#include "megatron/models/hf/weight_map.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "checkpoint/expect_user_error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/hf/weight_transforms.h"

namespace megatron {
namespace {

TEST(WeightMap, LinksLayersByPattern) {
  const std::vector<std::string> names{"decoder.layers.12.self_attention.linear_qkv.weight",
                                       "output_layer.weight"};
  const auto links = map_weights("qwen2", names, 0);
  EXPECT_EQ(links[0].theirs, (std::vector<std::string>{"model.layers.12.self_attn.q_proj.weight",
                                                       "model.layers.12.self_attn.k_proj.weight",
                                                       "model.layers.12.self_attn.v_proj.weight"}));
  EXPECT_EQ(links[1].theirs, std::vector<std::string>{"lm_head.weight"});
}

TEST(WeightMap, NamesParametersWithoutAHome) {
  const std::vector<std::string> names{"embedding.position_embeddings.weight",
                                       "decoder.layers.0.self_attention.q_layernorm.weight",
                                       "output_layer.weight"};
  expect_user_error([&] { map_weights("llama", names, 0); }, {"llama", names[0], names[1]});
  EXPECT_NO_THROW(map_weights("qwen3", std::span(names).subspan(1), 0));
}

TEST(WeightMap, GivesEachExpertItsTensors) {
  const std::vector<std::string> names{"decoder.layers.7.mlp.router.weight",
                                       "decoder.layers.7.mlp.experts.linear_fc1.weight",
                                       "decoder.layers.7.mlp.experts.linear_fc2.weight"};
  const auto mixtral = map_weights("mixtral", names, 2);
  const std::string moe = "model.layers.7.block_sparse_moe.";
  EXPECT_EQ(mixtral[0].theirs, std::vector<std::string>{moe + "gate.weight"});
  EXPECT_EQ(mixtral[1].theirs,
            (std::vector<std::string>{moe + "experts.0.w1.weight", moe + "experts.0.w3.weight",
                                      moe + "experts.1.w1.weight", moe + "experts.1.w3.weight"}));
  EXPECT_EQ(mixtral[2].theirs,
            (std::vector<std::string>{moe + "experts.0.w2.weight", moe + "experts.1.w2.weight"}));
  const auto qwen = map_weights("qwen3_moe", names, 11);
  ASSERT_EQ(qwen[1].theirs.size(), 22u);
  EXPECT_EQ(qwen[1].theirs[21], "model.layers.7.mlp.experts.10.up_proj.weight");
  EXPECT_EQ(qwen[2].theirs[10], "model.layers.7.mlp.experts.10.down_proj.weight");
  for (const auto& links : {mixtral, qwen}) {
    EXPECT_EQ(links[1].stacked, "model.layers.7.mlp.experts.gate_up_proj");
    EXPECT_EQ(links[2].stacked, "model.layers.7.mlp.experts.down_proj");
  }
  expect_user_error([&] { map_weights("qwen3", names, 2); }, {names[0], names[1], names[2]});
}

TEST(WeightMap, LayersHaveExpertsOrADenseMlp) {
  const std::vector<std::string> mixed{"decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
                                       "decoder.layers.0.mlp.linear_fc1.weight",
                                       "decoder.layers.1.pre_mlp_layernorm.weight",
                                       "decoder.layers.1.mlp.shared_experts.gate_weight"};
  const auto links = map_weights("qwen2_moe", mixed, 4);
  EXPECT_EQ(links[0].theirs[0], "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(links[2].theirs[0], "model.layers.1.post_attention_layernorm.weight");
  expect_user_error([&] { map_weights("qwen3_moe", mixed, 4); }, {mixed[3]});
  expect_user_error([&] { map_weights("mixtral", mixed, 4); }, {mixed[0], mixed[1], mixed[3]});
  const std::vector<std::string> both{"decoder.layers.3.mlp.linear_fc1.layer_norm_weight",
                                      "decoder.layers.3.pre_mlp_layernorm.weight"};
  expect_user_error([&] { map_weights("qwen2_moe", both, 4); }, {both[0] + " and " + both[1]});
}

TEST(WeightMap, OlmoeHasNormsOfQueriesAndKeysAndNoDenseMlp) {
  const std::string layer = "decoder.layers.2.";
  const std::vector<std::string> names{layer + "self_attention.q_layernorm.weight",
                                       layer + "mlp.experts.linear_fc2.weight"};
  const auto links = map_weights("olmoe", names, 2);
  EXPECT_EQ(links[0].theirs[0], "model.layers.2.self_attn.q_norm.weight");
  EXPECT_EQ(links[1].theirs[1], "model.layers.2.mlp.experts.1.down_proj.weight");
  const std::string dense = layer + "mlp.linear_fc1.weight";
  expect_user_error([&] { map_weights("olmoe", std::vector{dense}, 2); }, {dense});
}

TEST(WeightMap, CompletesNamesOfBaseModels) {
  EXPECT_EQ(full_hf_name("gpt2", "h.0.ln_1.weight"), "transformer.h.0.ln_1.weight");
  EXPECT_EQ(full_hf_name("llama", "model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(full_hf_name("llama", "lm_head.weight"), "lm_head.weight");
  EXPECT_TRUE(is_hf_buffer("gpt2", "transformer.h.0.attn.bias"));
  EXPECT_FALSE(is_hf_buffer("gpt2", "transformer.h.0.attn.c_attn.bias"));
  EXPECT_TRUE(is_hf_buffer("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"));
}

TransformerConfig grouped() {
  TransformerConfig model;
  model.num_attention_heads = 4;
  model.group_query_attention = true;
  model.num_query_groups = 2;
  model.kv_channels = 1;
  model.hidden_size = 3;
  return model;
}

// Megatron Core's row order: for each group its queries, its key, its value.
TEST(WeightTransforms, InterleavesQueryGroups) {
  const at::Tensor q = at::arange(4), k = at::arange(10, 12), v = at::arange(20, 22);
  const at::Tensor bias = to_megatron(WeightTransform::query_groups, grouped(), {q, k, v});
  EXPECT_TRUE(bias.equal(at::tensor({0, 1, 10, 20, 2, 3, 11, 21})));
}

TEST(WeightTransforms, OrdersGpt2ByHead) {
  TransformerConfig model;
  model.num_attention_heads = 2;
  model.hidden_size = 2;
  const at::Tensor bias =
      to_megatron(WeightTransform::gpt2_qkv, model, {at::tensor({0, 1, 10, 11, 20, 21})});
  EXPECT_TRUE(bias.equal(at::tensor({0, 10, 20, 1, 11, 21})));
  const at::Tensor conv = at::arange(12).view({2, 6});
  const at::Tensor weight = to_megatron(WeightTransform::gpt2_qkv, model, {conv});
  EXPECT_TRUE(weight.select(0, 1).equal(conv.select(1, 2)));
}

TEST(WeightTransforms, StacksExperts) {
  const at::Tensor gate0 = at::full({1, 2}, 1), up0 = at::full({1, 2}, 2),
                   gate1 = at::full({1, 2}, 3), up1 = at::full({1, 2}, 4);
  const at::Tensor fc1 =
      to_megatron(WeightTransform::experts_gate_up, grouped(), {gate0, up0, gate1, up1});
  EXPECT_EQ(Shape(fc1.sizes().vec()), (Shape{2, 2, 2}));
  EXPECT_TRUE(fc1.select(2, 1).equal(at::tensor({1, 2, 3, 4}).view({2, 2}).to(fc1.dtype())));
  const at::Tensor fc2 = to_megatron(WeightTransform::experts, grouped(), {gate0, up0, gate1});
  EXPECT_EQ(Shape(fc2.sizes().vec()), (Shape{3, 1, 2}));
  EXPECT_TRUE(fc2.select(0, 2).equal(gate1));
}

TEST(WeightTransforms, GoThereAndBack) {
  const TransformerConfig model = grouped();
  const std::pair<WeightTransform, Shape> cases[] = {
      {WeightTransform::copy, {5, 3}},         {WeightTransform::transpose, {5, 3}},
      {WeightTransform::query_groups, {8, 3}}, {WeightTransform::query_groups, {8}},
      {WeightTransform::gate_up, {6, 3}},      {WeightTransform::gpt2_qkv, {8, 3}},
      {WeightTransform::experts, {5, 3, 2}},   {WeightTransform::experts_gate_up, {5, 4, 3}},
  };
  for (const auto& [transform, shape] : cases) {
    const at::Tensor ours = at::arange(num_elements(shape)).view(shape);
    const auto theirs = to_hf(transform, model, ours);
    const auto shapes = hf_shapes(transform, model, shape);
    ASSERT_EQ(theirs.size(), shapes.size());
    for (std::size_t i = 0; i < theirs.size(); ++i)
      EXPECT_EQ(Shape(theirs[i].sizes().vec()), shapes[i]);
    EXPECT_TRUE(to_megatron(transform, model, theirs).equal(ours)) << static_cast<int>(transform);
  }
}

}  // namespace
}  // namespace megatron
