// Decoding with the KV cache gives the logits of a full forward pass, up to the order of summation.
#include "megatron/ops/kv_cache.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <span>

#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/inference/generator.h"
#include "megatron/inference/scorer.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/inference_passes.h"

namespace megatron {
namespace {

constexpr std::int64_t kVocabSize = 61, kLength = 23;

struct Variant {
  std::string name;
  TransformerConfig config;
};

TransformerConfig small_config() {
  TransformerConfig config;
  config.num_layers = 3;
  config.hidden_size = 48;
  config.num_attention_heads = 4;
  config.max_position_embeddings = 64;
  config.vocab_size = kVocabSize;
  config.init_method_std = 0.3;  // makes attention far from uniform
  return config;
}

std::vector<Variant> variants() {
  std::vector<Variant> result;
  const auto add = [&](std::string name, auto change) {
    TransformerConfig config = small_config();
    change(config);
    resolve(config);
    result.push_back({std::move(name), config});
  };
  add("learned", [](TransformerConfig&) {});
  add("rope", [](TransformerConfig& c) {
    c.position_embedding_type = PositionEmbedding::rope;
    c.normalization = Normalization::RMSNorm;
    c.gated_linear_unit = true;
    c.activation = Activation::silu;
    c.add_bias_linear = false;
    c.untie_embeddings_and_output_weights = true;
  });
  add("grouped", [](TransformerConfig& c) {
    c.position_embedding_type = PositionEmbedding::rope;
    c.rotary_percent = 0.5;
    c.rotary_interleaved = true;
    c.group_query_attention = true;
    c.num_query_groups = 2;
    c.qk_layernorm = true;
  });
  add("window", [](TransformerConfig& c) {
    c.position_embedding_type = PositionEmbedding::rope;
    c.window_size = {5, 0};
    set_windows(c, {1, 0, 1});
  });
  add("alibi", [](TransformerConfig& c) { c.position_embedding_type = PositionEmbedding::alibi; });
  const auto latents = [](TransformerConfig& c) {
    c.multi_latent_attention = c.qk_layernorm = true;
    c.q_lora_rank = 20;
    c.kv_lora_rank = 12;
    c.qk_head_dim = 10;
    c.qk_pos_emb_head_dim = 6;
    c.v_head_dim = 14;
    c.position_embedding_type = PositionEmbedding::rope;
    c.rope_scaling_type = RopeScaling::yarn;
    c.rope_scaling_factor = 4;
    c.rope_original_max_position_embeddings = 16;
    c.yarn_mscale_all_dim = 0.5;
  };
  add("latents", latents);
  add("cached_latents", [&](TransformerConfig& c) {
    latents(c);
    c.q_lora_rank = 0;
    c.cache_mla_latents = true;
  });
  add("cached_latents_with_sinks", [&](TransformerConfig& c) {
    latents(c);
    c.cache_mla_latents = true;
    c.softmax_type = SoftmaxType::learnable;
    c.attn_logit_softcapping = 3;
    c.attn_temperature_scale = 0.5;
    c.attn_temperature_floor = 3;
    c.attn_temperature_all_layers = true;
    c.attention_chunk_size = 5;
    set_windows(c, {1, 0, 1});
  });
  add("sinks", [](TransformerConfig& c) {
    c.softmax_type = SoftmaxType::learnable;
    c.attn_logit_softcapping = 3;
    c.norm_placement = NormPlacement::sandwich;
  });
  add("chunks", [](TransformerConfig& c) {
    c.position_embedding_type = PositionEmbedding::rope;
    c.attention_chunk_size = 5;
    c.rotary_base_local = 100;
    c.attn_temperature_scale = 0.5;
    c.attn_temperature_floor = 3;
    c.attention_output_gate = c.qk_l2_norm = c.parallel_residual = true;
    set_windows(c, {1, 0, 1});
    set_nope(c, {0, 1, 0});
  });
  add("post_norm", [](TransformerConfig& c) {
    c.position_embedding_type = PositionEmbedding::none;
    c.norm_placement = NormPlacement::post;
  });
  return result;
}

struct BoundModel {
  explicit BoundModel(const TransformerConfig& config, c10::ScalarType dtype = c10::kFloat)
      : model(make_gpt_model(config, Rank{})),
        weights(declared_parameters(*model), {.dtype = dtype, .with_gradients = false}) {
    weights.initialize(/*seed=*/7);
  }
  std::unique_ptr<Model> model;
  ParamStore weights;
};

std::vector<std::int64_t> sample_ids() {
  std::vector<std::int64_t> ids(kLength);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int64_t>((i * 37 + 11) % kVocabSize);
  return ids;
}

at::Tensor sample_tokens() {
  return at::arange(kLength, c10::kLong).mul(37).add(11).remainder(kVocabSize).unsqueeze(0);
}

/// Returns the logits of all tokens, fed in chunks that end at `ends`.
at::Tensor logits_in_pieces(Model& model, const at::Tensor& tokens,
                            const std::vector<std::int64_t>& ends) {
  const OwnedCaches caches;
  std::vector<at::Tensor> pieces;
  std::int64_t start = 0;
  for (const std::int64_t end : ends) {
    pieces.push_back(model_logits(model, tokens.slice(1, start, end), &caches));
    start = end;
  }
  return at::cat(pieces, 1);
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.sub(b).abs().max().item<double>() / b.abs().max().item<double>();
}

class KvCacheTest : public testing::TestWithParam<Variant> {};

TEST_P(KvCacheTest, DecodingEqualsAFullPass) {
  std::vector<std::int64_t> one_by_one(kLength);
  for (std::size_t i = 0; i < one_by_one.size(); ++i)
    one_by_one[i] = static_cast<std::int64_t>(i) + 1;
  for (const auto& [dtype, tolerance] :
       {std::pair(c10::kFloat, 1e-5),
        std::pair(c10::kDouble, 2e-7)}) {  // logits are rounded to float32
    BoundModel bound(GetParam().config, dtype);
    const at::Tensor tokens = sample_tokens();
    const at::Tensor full = model_logits(*bound.model, tokens);
    ASSERT_EQ(full.sizes(), at::IntArrayRef({1, kLength, kVocabSize}));
    EXPECT_LE(largest_difference(logits_in_pieces(*bound.model, tokens, one_by_one), full),
              tolerance);
    EXPECT_LE(
        largest_difference(logits_in_pieces(*bound.model, tokens, {9, 10, 11, 17, kLength}), full),
        tolerance);
  }
}

// Our GEMM and our attention sum a row in an order that its batch does not change.
TEST_P(KvCacheTest, SequencesOfABatchHaveTheLogitsOfEachAlone) {
  const std::vector<std::int64_t> ids = sample_ids();
  for (const auto dtype : {c10::kFloat, c10::kBFloat16, c10::kDouble}) {
    BoundModel bound(GetParam().config, dtype);
    const OwnedCaches together(3);
    std::vector<OwnedCaches> alone(3);
    const std::vector<std::array<std::size_t, 3>> passes{
        {7, 1, 4}, {1, 1, 1}, {1, 5, 2}, {1, 1, 1}};
    for (const auto& lengths : passes) {
      std::vector<std::span<const std::int64_t>> parts;
      std::vector<at::Tensor> expected;
      for (std::size_t i = 0; i < 3; ++i) {
        const auto seen = static_cast<std::size_t>(together.sequences[i].length);
        parts.push_back(std::span(ids).subspan(3 * i + seen, lengths[i]));
        expected.push_back(bound.model->infer({.microbatch = microbatch_of({parts[i]}),
                                               .wants = Wants::last_logits,
                                               .caches = &alone[i].caches}));
      }
      const at::Tensor logits = bound.model->infer({.microbatch = microbatch_of(parts),
                                                    .wants = Wants::last_logits,
                                                    .caches = &together.caches});
      if (uses_own_gemm(dtype)) {
        EXPECT_TRUE(at::equal(logits, at::cat(expected))) << dtype;
      } else {
        EXPECT_LE(largest_difference(logits, at::cat(expected)),
                  dtype == c10::kBFloat16 ? 2e-2 : 1e-5)
            << dtype;
      }
    }
  }
}

// Keys and values of 4 heads have (10 + 6 + 14) · 4 channels. A latent has 12, which are kept as
// keys and as values, and the key that heads share has 6.
TEST(LatentCache, KeepsALatentAndAKeyOfEachToken) {
  for (const Variant& variant : variants()) {
    if (!variant.config.multi_latent_attention) continue;
    BoundModel bound(variant.config);
    const OwnedCaches caches;
    model_logits(*bound.model, sample_tokens(), &caches);
    const LayerBlocks& blocks =
        caches.sequences.front().memory().layers().at("decoder.layers.1.self_attention");
    EXPECT_EQ(blocks.size().elements_per_token, variant.config.cache_mla_latents ? 30 : 120);
  }
}

TEST_P(KvCacheTest, LastOnlyIsTheLastRow) {
  BoundModel bound(GetParam().config);
  const at::Tensor full = model_logits(*bound.model, sample_tokens()),
                   last = model_logits(*bound.model, sample_tokens(), nullptr, Wants::last_logits);
  EXPECT_LE(largest_difference(last, full.slice(1, kLength - 1)), 1e-5);
}

TEST_P(KvCacheTest, GreedyTextIsWhatFullPassesChoose) {
  BoundModel bound(GetParam().config, c10::kDouble);
  const std::vector<std::int64_t> prompt = {3, 1, 4, 1, 5};
  const Generation generation =
      Generator(*bound.model, {.temperature = 0, .max_new_tokens = 30}).generate(prompt, 0);
  std::vector<std::int64_t> ids = prompt;
  for (const std::int64_t id : generation.ids) {
    const at::Tensor tokens = at::tensor(ids, c10::kLong).unsqueeze(0);
    EXPECT_EQ(model_logits(*bound.model, tokens, nullptr, Wants::last_logits)
                  .argmax()
                  .item<std::int64_t>(),
              id)
        << "at position " << ids.size();
    ids.push_back(id);
  }
  EXPECT_EQ(generation.ids.size(), 30u);
}

TEST_P(KvCacheTest, ScoreIsTheLogSoftmaxOfAFullPass) {
  BoundModel bound(GetParam().config);
  const std::vector<std::int64_t> ids = sample_ids();
  const Score score = score_tokens(*bound.model, ids, "ids");
  const at::Tensor logprobs =
      model_logits(*bound.model, sample_tokens()).to(c10::kDouble).log_softmax(-1);
  ASSERT_EQ(score.logprobs.size(), ids.size() - 1);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    EXPECT_NEAR(score.logprobs[i],
                logprobs[0][static_cast<std::int64_t>(i)][ids[i + 1]].item<double>(), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, KvCacheTest, testing::ValuesIn(variants()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace megatron
