// The loss and every gradient of a GPT on any tensor-parallel layout equal those of one rank,
// dropout included.
#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/params/param_store.h"
#include "support/gradient_check.h"
#include "support/tensor_parallel.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

struct Variant {
  const char* name;
  void (*change)(TransformerConfig&);
};

void make_latent(TransformerConfig& config) {
  config.group_query_attention = false;
  config.num_query_groups = config.num_attention_heads;
  config.multi_latent_attention = true;
  config.kv_lora_rank = 5;
  config.qk_head_dim = 3;
  config.qk_pos_emb_head_dim = 4;
  config.v_head_dim = 2;
}

constexpr Variant kVariants[] = {
    {"gpt2", [](TransformerConfig&) {}},
    {"gpt2_untied",
     [](TransformerConfig& config) { config.untie_embeddings_and_output_weights = true; }},
    {"llama", make_llama},
    {"one_group",
     [](TransformerConfig& config) {
       make_llama(config);
       config.num_query_groups = 1;
       config.qk_layernorm = true;
       config.add_qkv_bias = true;
       config.untie_embeddings_and_output_weights = false;
     }},
    {"four_groups",
     [](TransformerConfig& config) {
       make_llama(config);
       config.num_attention_heads = 8;
       config.num_query_groups = 4;
       config.rotary_interleaved = true;
       config.qk_layernorm = true;
       config.normalization = Normalization::LayerNorm;
       config.apply_layernorm_1p = true;
     }},
    {"norms_of_all_heads_one_group",
     [](TransformerConfig& config) {
       make_llama(config);
       config.num_query_groups = 1;
       config.qk_layernorm = true;
       config.qk_layernorm_scope = QkNormScope::all_heads;
     }},
    {"norms_of_all_heads_clipped",
     [](TransformerConfig& config) {
       make_llama(config);
       config.num_attention_heads = 8;
       config.num_query_groups = 4;
       config.qk_layernorm = true;
       config.qk_layernorm_scope = QkNormScope::all_heads;
       config.apply_layernorm_1p = true;
       config.clip_qkv = 1.25;
     }},
    {"own_norms_of_heads_one_group",
     [](TransformerConfig& config) {
       make_llama(config);
       config.num_query_groups = 1;
       config.qk_layernorm = true;
       config.qk_layernorm_scope = QkNormScope::each_head;
     }},
    {"own_norms_of_heads_without_biases",
     [](TransformerConfig& config) {
       make_llama(config);
       config.num_attention_heads = 8;
       config.num_query_groups = 4;
       config.normalization = Normalization::LayerNorm;
       config.add_norm_bias = false;
       config.add_output_bias = true;
       config.qk_layernorm = true;
       config.qk_layernorm_scope = QkNormScope::each_head;
     }},
    {"latents",
     [](TransformerConfig& config) {
       make_llama(config);
       make_latent(config);
       config.q_lora_rank = 6;
       config.qk_layernorm = true;
     }},
    {"latents_of_keys_alone", [](TransformerConfig& config) { make_latent(config); }},
    {"post_norm_alibi",
     [](TransformerConfig& config) {
       config.norm_placement = NormPlacement::post;
       config.position_embedding_type = PositionEmbedding::alibi;
       config.activation = Activation::squared_relu;
     }},
    {"windowed",
     [](TransformerConfig& config) {
       config.window_size = {{2, 0}};
       set_windows(config, {1, 0});
       config.position_embedding_type = PositionEmbedding::none;
       config.fp32_residual_connection = true;
     }},
    {"sinks",
     [](TransformerConfig& config) {
       make_llama(config);
       config.num_attention_heads = 8;
       config.num_query_groups = 2;
       config.softmax_type = SoftmaxType::learnable;
       config.norm_placement = NormPlacement::sandwich;
       config.final_logit_softcapping = 2;
       config.logit_scale = 0.5;
     }},
    {"gated_parallel_blocks",
     [](TransformerConfig& config) {
       make_llama(config);
       config.num_attention_heads = 8;
       config.num_query_groups = 2;
       config.attention_output_gate = config.qk_l2_norm = true;
       config.parallel_residual = true;
       config.embedding_multiplier = 2;
     }},
    {"output_norms_one_input",
     [](TransformerConfig& config) {
       config.norm_placement = NormPlacement::output;
       config.parallel_residual = config.share_block_norm = true;
     }},
    {"residual_from_norm",
     [](TransformerConfig& config) {
       config.apply_residual_connection_post_layernorm = true;
       config.hidden_dropout = config.attention_dropout = 0;
     }},
    {"one_token_vocabulary_part", [](TransformerConfig& config) { config.vocab_size = 9; }},
};

constexpr TensorLayout kLayouts[] = {
    {.tp = 2},
    {.tp = 2, .sequence_parallel = true},
    {.tp = 4},
    {.tp = 4, .sequence_parallel = true},
    {.tp = 2, .options = {.async_allreduce = false}},
    {.tp = 2, .options = {.overlap_chunks = 3}},
    {.tp = 4, .sequence_parallel = true, .options = {.overlap_chunks = 2}},
};

/// Eight positions in two samples, one with two documents. The first token is masked.
Microbatch batch_for(const TransformerConfig& config, std::int64_t s = 8) {
  Microbatch batch = patterned_batch(2, s, config.vocab_size);
  batch.tensors["loss_mask"][0][0] = 0;
  batch.tensors["document_ids"] = at::zeros({2, s}, at::kInt);
  batch.tensors["document_ids"][1].narrow(0, 3, s - 3).fill_(1);
  return batch;
}

TransformerConfig config_of(const Variant& variant) {
  TransformerConfig config = tiny_gpt();
  config.init_method_std = 0.3;
  variant.change(config);
  return config;
}

void expect_same(const std::map<std::string, at::Tensor>& actual,
                 const std::map<std::string, at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (const auto& [name, tensor] : expected)
    EXPECT_LE(difference(actual.at(name), tensor), tolerance) << name;
}

class GptTensorParallel : public testing::TestWithParam<Variant> {};

TEST_P(GptTensorParallel, EqualsOneRank) {
  const TransformerConfig config = config_of(GetParam());
  const Microbatch batch = batch_for(config);
  const GptResult one = run_gpt(config, batch, {});
  for (const TensorLayout& layout : kLayouts) {
    SCOPED_TRACE(layout.name());
    const GptResult many = run_gpt(config, batch, {.layout = layout});
    EXPECT_NEAR(many.loss, one.loss, 1e-12 * one.loss);
    EXPECT_LE(difference(many.token_losses, one.token_losses), 1e-6);
    expect_same(many.weights, one.weights, 0);
    expect_same(many.gradients, one.gradients, 1e-12);
  }
}

TEST_P(GptTensorParallel, EqualsOneRankInFloat32) {
  const TransformerConfig config = config_of(GetParam());
  const Microbatch batch = batch_for(config);
  const GptResult one = run_gpt(config, batch, {.store = {}});
  for (const bool sequence_parallel : {false, true}) {
    const GptResult many = run_gpt(
        config, batch, {.layout = {.tp = 4, .sequence_parallel = sequence_parallel}, .store = {}});
    EXPECT_NEAR(many.loss, one.loss, 1e-6 * one.loss);
    for (const auto& [name, gradient] : one.gradients) {
      EXPECT_LE((many.gradients.at(name) - gradient).norm().item<double>(),
                1e-5 * gradient.norm().item<double>())
          << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GptTensorParallel, testing::ValuesIn(kVariants),
                         [](const auto& info) { return info.param.name; });

TEST(GptTensorParallel, ThreeRanks) {
  TransformerConfig config = config_of({"", make_llama});
  config.num_attention_heads = 6;
  config.num_query_groups = 3;
  config.ffn_hidden_size = 21;
  const Microbatch batch = batch_for(config, 6);
  const GptResult one = run_gpt(config, batch, {});
  for (const bool sequence_parallel : {false, true}) {
    const GptResult many =
        run_gpt(config, batch, {.layout = {.tp = 3, .sequence_parallel = sequence_parallel}});
    EXPECT_NEAR(many.loss, one.loss, 1e-12 * one.loss);
    expect_same(many.gradients, one.gradients, 1e-12);
  }
}

/// Returns √Σ |a − b|² over all gradients.
double distance(const std::map<std::string, at::Tensor>& a,
                const std::map<std::string, at::Tensor>& b) {
  double sum = 0;
  for (const auto& [name, gradient] : a)
    sum += (gradient.to(at::kDouble) - b.at(name).to(at::kDouble)).square().sum().item<double>();
  return std::sqrt(sum);
}

class GptTensorParallelTypes : public testing::TestWithParam<c10::ScalarType> {};

/// Rounding partial sums to 16 bits must cost little compared with the rounding of one rank.
TEST_P(GptTensorParallelTypes, AreAsCloseToFloat32AsOneRank) {
  for (const Variant& variant : {kVariants[0], kVariants[2], kVariants[6]}) {
    const TransformerConfig config = config_of(variant);
    const Microbatch batch = batch_for(config);
    const ParamStore::Options half{.dtype = GetParam(), .grad_dtype = at::kFloat};
    const GptResult exact = run_gpt(config, batch, {.store = {}}),
                    one = run_gpt(config, batch, {.store = half});
    const double expected = distance(one.gradients, exact.gradients);
    for (const bool sequence_parallel : {false, true}) {
      const GptResult many =
          run_gpt(config, batch,
                  {.layout = {.tp = 2, .sequence_parallel = sequence_parallel}, .store = half});
      EXPECT_LE(distance(many.gradients, exact.gradients), 1.5 * expected) << variant.name;
      expect_same(many.weights, one.weights, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Halves, GptTensorParallelTypes, testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& info) { return c10::toString(info.param); });

}  // namespace
}  // namespace megatron
