// The whole GPT: loss at initialisation, gradients against central differences in float64,
// generation with a KV cache against the full pass.
#include "megatron/models/gpt_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/inference_passes.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

/// A batch whose first token is masked and whose samples have their own positions.
Microbatch batch_of(std::int64_t b, std::int64_t s, std::int64_t vocab) {
  Microbatch microbatch = patterned_batch(b, s, vocab);
  microbatch.tensors["loss_mask"][0][0] = 0;
  microbatch.tensors["position_ids"] = microbatch.at("position_ids").expand({b, s}).contiguous();
  return microbatch;
}

struct Variant {
  const char* name;
  void (*change)(TransformerConfig&);
};

class GptGradients : public testing::TestWithParam<Variant> {};

TEST_P(GptGradients, EqualCentralDifferences) {
  TransformerConfig config = tiny_gpt();
  GetParam().change(config);
  const Rank rank;
  const auto model = make_gpt_model(config, rank, 8);
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble});
  store.initialize(3);
  // Every norm and bias differs from its neutral value.
  for (const Parameter* parameter : store.parameters()) {
    at::Tensor value = parameter->value();
    value.add_(at::sin(at::arange(value.numel(), at::kDouble) * 1.7 + 0.3).view(value.sizes()) *
               0.1);
    if (parameter->sharding().splits.front().pad_multiple > 0)
      value.narrow(0, config.vocab_size, value.size(0) - config.vocab_size).zero_();
  }
  const Microbatch microbatch = batch_of(2, 6, config.vocab_size);
  store.zero_gradients();
  const StepOutput output = model->forward_step(microbatch, /*training=*/true);
  (output.root / 11).backward();
  store.finalize_gradients();
  for (const Parameter* parameter : store.parameters()) {
    at::Tensor value = parameter->value();
    const at::Tensor direction =
        at::cos(at::arange(value.numel(), at::kDouble) * 2.3).view(value.sizes());
    if (parameter->sharding().splits.front().pad_multiple > 0)
      direction.narrow(0, config.vocab_size, value.size(0) - config.vocab_size).zero_();
    const double step = 1e-6;
    const auto loss_at = [&](double offset) {
      const at::NoGradGuard no_grad;
      value.add_(direction, offset);
      const double loss = model->forward_step(microbatch, true).root.item<double>() / 11;
      value.sub_(direction, offset);
      return loss;
    };
    const double numeric = (loss_at(step) - loss_at(-step)) / (2 * step);
    const double analytic = (parameter->grad() * direction).sum().item<double>();
    EXPECT_NEAR(analytic, numeric, 1e-7 * std::max(1.0, std::abs(numeric)) + 1e-8)
        << parameter->name();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, GptGradients,
    testing::Values(Variant{"gpt2", [](TransformerConfig&) {}}, Variant{"llama", make_llama},
                    Variant{"post_norm",
                            [](TransformerConfig& config) {
                              config.norm_placement = NormPlacement::post;
                              config.position_embedding_type = PositionEmbedding::alibi;
                            }},
                    Variant{"windowed_qk_norm",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.qk_layernorm = true;
                              config.window_size = {{2, 0}};
                              set_windows(config, {1, 0});
                              config.rotary_interleaved = true;
                              config.rotary_percent = 0.5;
                              config.apply_layernorm_1p = true;
                              config.add_qkv_bias = true;
                            }},
                    Variant{"norms_of_all_heads_clipped",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.qk_layernorm = true;
                              config.qk_layernorm_scope = QkNormScope::all_heads;
                              config.clip_qkv = 1.5;
                            }},
                    Variant{"sinks",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.softmax_type = SoftmaxType::learnable;
                              config.attn_logit_softcapping = 0.7;
                              config.softmax_scale = 0.8;
                              config.attn_temperature_scale = 0.5;
                              config.attn_temperature_floor = 2;
                              config.attn_temperature_all_layers = true;
                            }},
                    Variant{"chunks_and_local_rotation",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.softmax_type = SoftmaxType::off_by_one;
                              config.attention_chunk_size = 3;
                              config.rotary_base_local = 50;
                              config.attn_temperature_scale = 0.5;
                              config.attn_temperature_floor = 2;
                              set_windows(config, {1, 0});
                              set_nope(config, {0, 1});
                            }},
                    Variant{"multipliers",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.embedding_multiplier = 3;
                              config.residual_multiplier = 0.4;
                              config.logit_scale = 0.6;
                              config.final_logit_softcapping = 0.5;
                            }},
                    Variant{"output_gate",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.attention_output_gate = true;
                              config.qk_l2_norm = true;
                            }},
                    Variant{"norms_after_rotation",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.qk_layernorm = true;
                              config.qk_layernorm_placement = QkNormPlacement::after_rotary;
                              config.rotary_percent = 0.5;
                            }},
                    Variant{"sandwich_norms",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.norm_placement = NormPlacement::sandwich;
                              config.apply_layernorm_1p = true;
                            }},
                    Variant{"two_depths",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.mtp_num_layers = 2;
                              config.mtp_loss_scaling_factor = 0.7;
                            }},
                    Variant{"a_repeated_depth_and_tied_embeddings",
                            [](TransformerConfig& config) {
                              config.position_embedding_type = PositionEmbedding::rope;
                              config.mtp_num_layers = 2;
                              config.mtp_use_repeated_layer = true;
                            }},
                    Variant{"output_norms",
                            [](TransformerConfig& config) {
                              config.norm_placement = NormPlacement::output;
                            }},
                    Variant{"parallel_residual",
                            [](TransformerConfig& config) { config.parallel_residual = true; }},
                    Variant{"parallel_residual_of_one_norm",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.parallel_residual = config.share_block_norm = true;
                            }},
                    Variant{"own_norms_of_heads_without_biases",
                            [](TransformerConfig& config) {
                              config.add_norm_bias = false;
                              config.qk_layernorm = true;
                              config.qk_layernorm_scope = QkNormScope::each_head;
                              config.apply_layernorm_1p = true;
                            }},
                    Variant{"output_bias",
                            [](TransformerConfig& config) {
                              config.add_output_bias = true;
                              config.logit_scale = 0.7;
                            }},
                    Variant{"untied_output_bias",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.add_output_bias = true;
                            }},
                    Variant{"own_rms_norms_of_heads",
                            [](TransformerConfig& config) {
                              make_llama(config);
                              config.qk_layernorm = true;
                              config.qk_layernorm_scope = QkNormScope::each_head;
                            }},
                    Variant{"clipped", [](TransformerConfig& config) { config.clip_qkv = 0.05; }},
                    Variant{"residual_from_norm",
                            [](TransformerConfig& config) {
                              config.apply_residual_connection_post_layernorm = true;
                              config.hidden_dropout = config.attention_dropout = 0;
                              config.activation = Activation::squared_relu;
                            }}),
    [](const auto& info) { return info.param.name; });

TEST(GptModel, LossAtInitialisationIsThatOfAUniformGuess) {
  TransformerConfig config = tiny_gpt();
  config.init_method_std = 0.001;
  const auto model = make_gpt_model(config, Rank{}, 8);
  ParamStore store(declared_parameters(*model), {});
  store.initialize(1);
  const StepOutput output = model->forward_step(batch_of(2, 6, config.vocab_size), false);
  EXPECT_NEAR(output.root.item<double>() / output.count.item<double>(), std::log(13.0), 1e-3);
}

TEST(GptModel, PassesGiveWhatTheyWant) {
  const TransformerConfig config = tiny_gpt();
  const auto model = make_gpt_model(config, Rank{}, 8);
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble, .with_gradients = false});
  store.initialize(1);
  const Microbatch batch = batch_of(2, 6, config.vocab_size);
  const auto result = [&](Wants wants) {
    return model->infer({.microbatch = batch, .wants = wants}).to(at::kDouble);
  };
  const at::Tensor logits = result(Wants::logits),
                   words = store.find("embedding.word_embeddings.weight")
                               ->value()
                               .narrow(0, 0, config.vocab_size);
  EXPECT_LT((result(Wants::hidden).matmul(words.t()) - logits).abs().max().item<double>(), 1e-6);
  EXPECT_LT((result(Wants::last_logits) - logits.select(1, 5)).abs().max().item<double>(), 1e-6);
  const at::Tensor expected =
      -logits.log_softmax(-1).gather(-1, batch.at("labels").unsqueeze(-1)).squeeze(-1);
  EXPECT_LT((result(Wants::token_losses) - expected).abs().max().item<double>(), 1e-5);
}

TEST(GptModel, LastLogitsAreOfAsManyTokensAsAPassCounts) {
  TransformerConfig config = tiny_gpt();
  config.max_position_embeddings = 9;
  const auto model = make_gpt_model(config, Rank{}, 8);
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble, .with_gradients = false});
  store.initialize(1);
  using Counts = std::vector<std::int64_t>;
  const Counts ids{5, 1, 7, 12, 3, 3, 0, 9, 2};
  const std::span all(ids);
  const auto last_logits = [&](const Microbatch& microbatch, const Counts& counts) {
    return model->infer(
        {.microbatch = microbatch, .wants = Wants::last_logits, .num_logits = counts});
  };
  const auto logits = [&](const Microbatch& microbatch) {
    return model->infer({.microbatch = microbatch, .wants = Wants::logits})[0];
  };
  const Microbatch packed = microbatch_of({all.first(4), all.subspan(4, 2), all.last(3)}),
                   alone = microbatch_of({all});
  const auto expect_rows = [&](const Microbatch& microbatch, const Counts& counts,
                               const Counts& rows) {
    const at::Tensor seen = last_logits(microbatch, counts),
                     expected = logits(microbatch).index_select(0, at::tensor(rows, at::kLong));
    ASSERT_EQ(seen.sizes(), expected.sizes());
    EXPECT_TRUE(at::allclose(seen, expected, 0, 1e-6));
  };
  expect_rows(packed, {}, {3, 5, 8});
  expect_rows(packed, {3, 0, 2}, {1, 2, 3, 7, 8});
  expect_rows(packed, {0, 0, 0}, {});
  expect_rows(alone, {}, {8});
  expect_rows(alone, {4}, {5, 6, 7, 8});
  expect_rows(alone, {0}, {});
  EXPECT_THROW(last_logits(packed, {1, 1}), InternalError);
  EXPECT_THROW(last_logits(packed, {1, 3, 1}), InternalError);
}

/// With a floor of 4 the factor is 1 at the positions 0 to 3, and grows at 4.
TEST(GptModel, ATemperatureOfAllLayersBeginsAtPositionZero) {
  const at::Tensor tokens = (at::arange(16) * 5 % 13).view({2, 8});
  const auto logits = [&](double scale) {
    TransformerConfig config = tiny_gpt();
    make_llama(config);
    config.init_method_std = 0.5;
    config.attn_temperature_scale = scale;
    config.attn_temperature_floor = 4;
    config.attn_temperature_all_layers = true;
    const auto model = make_gpt_model(config, Rank{}, 8);
    ParamStore store(declared_parameters(*model), {.dtype = at::kDouble, .with_gradients = false});
    store.initialize(1);
    return model_logits(*model, tokens);
  };
  const at::Tensor change = (logits(0.5) - logits(0)).abs();
  EXPECT_LT(change.narrow(1, 0, 4).max().item<double>(), 1e-12);
  EXPECT_GT(change.select(1, 4).max().item<double>(), 1e-4);
}

TEST(GptModel, StatesGiveTheLogitsOfTheFullPass) {
  TransformerConfig config = tiny_gpt();
  make_llama(config);
  const auto model = make_gpt_model(config, Rank{}, 8);
  ParamStore store(declared_parameters(*model), {.dtype = at::kDouble, .with_gradients = false});
  store.initialize(1);
  const at::Tensor tokens = (at::arange(16) * 5 % 13).view({2, 8});
  const at::Tensor full = model_logits(*model, tokens);
  const OwnedCaches caches(2);
  std::vector<at::Tensor> parts = {model_logits(*model, tokens.narrow(1, 0, 3), &caches)};
  parts.push_back(model_logits(*model, tokens.narrow(1, 3, 2), &caches));
  for (std::int64_t i = 5; i < 8; ++i)
    parts.push_back(model_logits(*model, tokens.narrow(1, i, 1), &caches, Wants::last_logits));
  EXPECT_LT((at::cat(parts, 1) - full).abs().max().item<double>(), 1e-6);
}

}  // namespace
}  // namespace megatron
