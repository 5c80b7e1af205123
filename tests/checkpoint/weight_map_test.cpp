#include "megatron/models/hf/weight_map.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "checkpoint/expect_user_error.h"

namespace megatron {
namespace {

using Names = std::vector<std::string>;

std::vector<WeightMapping> map_weights_of(std::string_view model_type, const Names& names,
                                          std::int64_t num_experts) {
  return map_weights(*find_hf_family(model_type), names, num_experts);
}

Names names_of(const std::vector<HfTensor>& tensors) {
  Names names;
  for (const HfTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

TEST(WeightMap, LinksLayersByPattern) {
  const Names names{"decoder.layers.12.self_attention.linear_qkv.weight", "output_layer.weight"};
  const auto links = map_weights_of("qwen2", names, 0);
  EXPECT_EQ(names_of(links[0].theirs), (Names{"model.layers.12.self_attn.q_proj.weight",
                                              "model.layers.12.self_attn.k_proj.weight",
                                              "model.layers.12.self_attn.v_proj.weight"}));
  EXPECT_EQ(names_of(links[1].theirs), Names{"lm_head.weight"});
}

TEST(WeightMap, NamesParametersWithoutAHome) {
  const Names names{"embedding.position_embeddings.weight",
                    "decoder.layers.0.self_attention.q_layernorm.weight", "output_layer.weight"};
  expect_user_error([&] { map_weights_of("llama", names, 0); }, {"llama", names[0], names[1]});
  EXPECT_NO_THROW(map_weights_of("qwen3", Names(names.begin() + 1, names.end()), 0));
}

TEST(WeightMap, GivesEachExpertItsTensors) {
  const Names names{"decoder.layers.7.mlp.router.weight",
                    "decoder.layers.7.mlp.experts.linear_fc1.weight",
                    "decoder.layers.7.mlp.experts.linear_fc2.weight"};
  const auto mixtral = map_weights_of("mixtral", names, 2);
  const std::string moe = "model.layers.7.block_sparse_moe.";
  EXPECT_EQ(names_of(mixtral[0].theirs), Names{moe + "gate.weight"});
  EXPECT_EQ(names_of(mixtral[1].theirs),
            (Names{moe + "experts.0.w1.weight", moe + "experts.0.w3.weight",
                   moe + "experts.1.w1.weight", moe + "experts.1.w3.weight"}));
  EXPECT_EQ(names_of(mixtral[2].theirs),
            (Names{moe + "experts.0.w2.weight", moe + "experts.1.w2.weight"}));
  const auto qwen = map_weights_of("qwen3_moe", names, 11);
  ASSERT_EQ(qwen[1].theirs.size(), 22u);
  EXPECT_EQ(qwen[1].theirs[21].name, "model.layers.7.mlp.experts.10.up_proj.weight");
  EXPECT_EQ(qwen[2].theirs[10].name, "model.layers.7.mlp.experts.10.down_proj.weight");
  for (const auto& links : {mixtral, qwen}) {
    EXPECT_EQ(names_of(links[1].alternatives), Names{"model.layers.7.mlp.experts.gate_up_proj"});
    EXPECT_EQ(names_of(links[2].alternatives), Names{"model.layers.7.mlp.experts.down_proj"});
  }
  expect_user_error([&] { map_weights_of("qwen3", names, 2); }, {names[0], names[1], names[2]});
}

TEST(WeightMap, LayersHaveExpertsOrADenseMlp) {
  const Names mixed{"decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
                    "decoder.layers.0.mlp.linear_fc1.weight",
                    "decoder.layers.1.pre_mlp_layernorm.weight",
                    "decoder.layers.1.mlp.shared_experts.gate_weight"};
  const auto links = map_weights_of("qwen2_moe", mixed, 4);
  EXPECT_EQ(links[0].theirs[0].name, "model.layers.0.post_attention_layernorm.weight");
  EXPECT_EQ(links[2].theirs[0].name, "model.layers.1.post_attention_layernorm.weight");
  expect_user_error([&] { map_weights_of("qwen3_moe", mixed, 4); }, {mixed[3]});
  expect_user_error([&] { map_weights_of("mixtral", mixed, 4); }, {mixed[0], mixed[1], mixed[3]});
  const Names both{"decoder.layers.3.mlp.linear_fc1.layer_norm_weight",
                   "decoder.layers.3.pre_mlp_layernorm.weight"};
  expect_user_error([&] { map_weights_of("qwen2_moe", both, 4); }, {both[0] + " and " + both[1]});
}

TEST(WeightMap, OlmoeHasNormsOfQueriesAndKeysAndNoDenseMlp) {
  const std::string layer = "decoder.layers.2.";
  const Names names{layer + "self_attention.q_layernorm.weight",
                    layer + "mlp.experts.linear_fc2.weight"};
  const auto links = map_weights_of("olmoe", names, 2);
  EXPECT_EQ(links[0].theirs[0].name, "model.layers.2.self_attn.q_norm.weight");
  EXPECT_EQ(links[1].theirs[1].name, "model.layers.2.mlp.experts.1.down_proj.weight");
  const std::string dense = layer + "mlp.linear_fc1.weight";
  expect_user_error([&] { map_weights_of("olmoe", {dense}, 2); }, {dense});
}

TEST(WeightMap, NumbersDepthsOfMultiTokenPredictionBehindTheLayers) {
  const std::string depth = "mtp.layers.1.";
  const Names names{depth + "hnorm.weight",
                    depth + "final_layernorm.weight",
                    depth + "transformer_layer.self_attention.linear_kv_down_proj.weight",
                    depth + "transformer_layer.mlp.router.expert_bias",
                    depth + "transformer_layer.mlp.experts.linear_fc2.weight",
                    "embedding.word_embeddings.weight",
                    "output_layer.weight"};
  const auto links =
      map_weights(*find_hf_family("deepseek_v3"), names, 2, {.first = 61, .count = 2});
  const std::string layer = "model.layers.62.";
  EXPECT_EQ(names_of(links[0].theirs), Names{layer + "hnorm.weight"});
  EXPECT_EQ(names_of(links[1].theirs), Names{layer + "shared_head.norm.weight"});
  EXPECT_EQ(names_of(links[2].theirs), Names{layer + "self_attn.kv_a_proj_with_mqa.weight"});
  EXPECT_EQ(names_of(links[3].theirs), Names{layer + "mlp.gate.e_score_correction_bias"});
  EXPECT_EQ(names_of(links[4].theirs), (Names{layer + "mlp.experts.0.down_proj.weight",
                                              layer + "mlp.experts.1.down_proj.weight"}));
  EXPECT_EQ(names_of(links[5].theirs), Names{"model.embed_tokens.weight"});
  EXPECT_EQ(names_of(links[5].copies),
            (Names{"model.layers.61.embed_tokens.weight", "model.layers.62.embed_tokens.weight"}));
  EXPECT_EQ(names_of(links[6].copies), (Names{"model.layers.61.shared_head.head.weight",
                                              "model.layers.62.shared_head.head.weight"}));
  expect_user_error([&] { map_weights_of("llama", {names[0]}, 0); }, {names[0]});
}

TEST(WeightMap, CompletesNamesOfBaseModels) {
  const HfFamily &gpt2 = *find_hf_family("gpt2"), &llama = *find_hf_family("llama");
  EXPECT_EQ(full_hf_name(gpt2, "h.0.ln_1.weight"), "transformer.h.0.ln_1.weight");
  EXPECT_EQ(full_hf_name(llama, "model.norm.weight"), "model.norm.weight");
  EXPECT_EQ(full_hf_name(llama, "lm_head.weight"), "lm_head.weight");
  EXPECT_TRUE(is_hf_buffer(gpt2, "transformer.h.0.attn.bias"));
  EXPECT_FALSE(is_hf_buffer(gpt2, "transformer.h.0.attn.c_attn.bias"));
  EXPECT_TRUE(is_hf_buffer(llama, "model.layers.0.self_attn.rotary_emb.inv_freq"));
}

/// Puts foreign tensors together, slice by slice.
at::Tensor assembled(const std::vector<TensorPart>& parts, const std::vector<at::Tensor>& theirs,
                     const Sharding& ours) {
  const auto narrowed = [](at::Tensor tensor, const Shape& offset, const Shape& shape) {
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
      tensor = tensor.narrow(static_cast<std::int64_t>(dim), offset[dim], shape[dim]);
    return tensor;
  };
  at::Tensor whole = at::full(ours.global_shape, -1, theirs[0].options());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    for (const TensorSlice& slice : parts[i].slices(ours))
      narrowed(whole, slice.global_offset, slice.shape)
          .copy_(parts[i].region(parts[i].oriented(theirs[i]), slice.local_offset, slice.shape));
  }
  return whole;
}

/// Two query groups of two heads, one row each: Megatron Core's rows of a group are its queries,
/// its key, its value.
Sharding two_groups(Shape shape) {
  return Sharding::split(std::move(shape), 0, {{2}, {1}, {1}}, 2);
}

TEST(TensorPart, InterleavesQueryGroups) {
  const at::Tensor q = at::arange(4), k = at::arange(10, 12), v = at::arange(20, 22);
  const at::Tensor bias = assembled({{.blocks = {0, 1}}, {.blocks = {1, 1}}, {.blocks = {2, 1}}},
                                    {q, k, v}, two_groups({8}));
  EXPECT_TRUE(bias.equal(at::tensor({0, 1, 10, 20, 2, 3, 11, 21})));
}

TEST(TensorPart, OrdersGpt2ByHead) {
  const auto by_head = [](Shape shape) {
    return Sharding::split(std::move(shape), 0, {{1}, {1}, {1}}, 2);
  };
  const TensorPart conv1d{.blocks = {0, 3}, .is_transposed = true};
  const at::Tensor bias = assembled({conv1d}, {at::tensor({0, 1, 10, 11, 20, 21})}, by_head({6}));
  EXPECT_TRUE(bias.equal(at::tensor({0, 10, 20, 1, 11, 21})));
  const at::Tensor conv = at::arange(12).view({2, 6});
  const at::Tensor weight = assembled({conv1d}, {conv}, by_head({6, 2}));
  EXPECT_TRUE(weight.select(0, 1).equal(conv.select(1, 2)));
}

Sharding of_experts(std::int64_t number, std::int64_t rows) {
  return {.global_shape = {number, 2 * rows, 2},
          .splits = {{.dim = 0}, {.dim = 1, .blocks = {{rows}, {rows}}}}};
}

std::vector<TensorPart> gates_and_ups(std::int64_t number) {
  std::vector<TensorPart> parts;
  for (std::int64_t expert = 0; expert < number; ++expert)
    for (const std::size_t block : {0u, 1u})
      parts.push_back({.blocks = {block, 1}, .expert = expert});
  return parts;
}

TEST(TensorPart, StacksExperts) {
  const at::Tensor gate = at::full({1, 2}, 1);
  const at::Tensor fc1 =
      assembled(gates_and_ups(2), {gate, gate.mul(2), gate.mul(3), gate.mul(4)}, of_experts(2, 1));
  EXPECT_EQ(Shape(fc1.sizes().vec()), (Shape{2, 2, 2}));
  EXPECT_TRUE(fc1.select(2, 1).equal(at::tensor({1, 2, 3, 4}).view({2, 2}).to(fc1.dtype())));
}

constexpr TensorPart kAlternating{.blocks = {0, 2}, .is_transposed = true, .is_interleaved = true};

// GPT-OSS: the columns of [experts, in, 2·width] alternate between gate and up.
TEST(TensorPart, SeparatesAlternatingColumns) {
  const at::Tensor gate_up = at::arange(16).view({2, 2, 4});
  EXPECT_EQ(kAlternating.shape(of_experts(2, 2)), (Shape{2, 2, 4}));
  const at::Tensor fc1 = assembled({kAlternating}, {gate_up}, of_experts(2, 2));
  EXPECT_TRUE(fc1.select(2, 0).equal(at::tensor({0, 2, 1, 3, 8, 10, 9, 11}).view({2, 4})));
  EXPECT_TRUE(fc1.select(2, 1).equal(at::tensor({4, 6, 5, 7, 12, 14, 13, 15}).view({2, 4})));
  // A rank reads rows of one block: the second up of the last expert.
  const at::Tensor region =
      kAlternating.region(kAlternating.oriented(gate_up), Shape{1, 3, 0}, Shape{1, 1, 2});
  EXPECT_TRUE(region.flatten().equal(at::tensor({11, 15})));
}

TEST(TensorPart, GoesThereAndBack) {
  struct Case {
    Sharding ours;
    std::vector<TensorPart> parts;
  };
  const std::vector<TensorPart> q_k_v{{.blocks = {0, 1}}, {.blocks = {1, 1}}, {.blocks = {2, 1}}};
  const Case cases[] = {
      {Sharding::replicated({5, 3}), {{}}},
      {Sharding::split({5, 3}, 1), {{.is_transposed = true}}},
      {Sharding::replicated({5}), {{.is_row = true}}},
      {two_groups({8, 3}), q_k_v},
      {two_groups({8}), q_k_v},
      {two_groups({8, 3}), {{.blocks = {0, 3}, .is_transposed = true}}},
      {Sharding::split({6, 3}, 0, {{3}, {3}}), {{.blocks = {0, 1}}, {.blocks = {1, 1}}}},
      {of_experts(2, 3), gates_and_ups(2)},
      {of_experts(2, 3), {{.expert = 0}, {.expert = 1}}},
      {of_experts(2, 3), {{.is_transposed = true}}},
      {of_experts(2, 3), {kAlternating}},
      {Sharding::split({6}, 0, {{3}, {3}}), {{.blocks = {0, 2}, .is_interleaved = true}}},
      {Sharding::split({14, 3}, 0, {{2}, {4}, {8}}),
       {{.blocks = {0, 2}, .num_runs = 2}, {.blocks = {2, 1}, .num_runs = 2}}},
      {Sharding::split({12}, 0, {{2}, {2}, {1}, {1}}, 2),
       {{.blocks = {0, 2}, .num_runs = 4}, {.blocks = {2, 1}}, {.blocks = {3, 1}}}},
  };
  for (const auto& [sharding, parts] : cases) {
    const at::Tensor ours =
        at::arange(num_elements(sharding.global_shape)).view(sharding.global_shape);
    std::vector<at::Tensor> theirs;
    for (const TensorPart& part : parts) {
      theirs.push_back(part.cut(ours, sharding));
      EXPECT_EQ(Shape(theirs.back().sizes().vec()), part.shape(sharding));
    }
    EXPECT_TRUE(assembled(parts, theirs, sharding).equal(ours));
  }
}

}  // namespace
}  // namespace megatron
