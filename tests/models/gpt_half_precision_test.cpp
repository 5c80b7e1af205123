// The whole GPT with 16-bit weights: close to the same weights in float64, main gradients in
// float32, dtype of the residual stream, KV cache.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "megatron/config/pipeline_layout.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/gpt_model.h"
#include "support/inference_passes.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

TransformerConfig gpt2() {
  TransformerConfig config = tiny_gpt();
  config.hidden_size = 32;
  config.kv_channels = 8;
  config.ffn_hidden_size = 64;
  config.max_position_embeddings = 16;
  config.vocab_size = 61;
  config.hidden_dropout = config.attention_dropout = 0.1;
  config.init_method_std = 0.2;
  return config;
}

TransformerConfig llama() {
  TransformerConfig config = gpt2();
  make_llama(config);
  return config;
}

struct Trained {
  std::unique_ptr<Model> model;
  std::unique_ptr<ParamStore> store;
};

/// A model whose norms and biases all differ from their neutral values.
Trained model_of(const TransformerConfig& config, at::ScalarType type) {
  Trained result{make_gpt_model(config, Rank{}, 8), nullptr};
  const at::ScalarType gradients = type == at::kDouble ? at::kDouble : at::kFloat;
  result.store =
      std::make_unique<ParamStore>(declared_parameters(*result.model),
                                   ParamStore::Options{.dtype = type, .grad_dtype = gradients});
  result.store->initialize(3);
  for (const Parameter* parameter : result.store->parameters()) {
    at::Tensor value = parameter->value();
    value.add_(at::sin(at::arange(value.numel(), at::kDouble) * 1.7).view(value.sizes()) * 0.1);
    if (parameter->sharding().splits.front().pad_multiple > 0)
      value.narrow(0, config.vocab_size, value.size(0) - config.vocab_size).zero_();
  }
  return result;
}

double step(const Trained& trained, const Microbatch& microbatch) {
  trained.store->zero_gradients();
  const StepOutput output = trained.model->forward_step(microbatch, /*training=*/true);
  output.root.backward();
  trained.store->finalize_gradients();
  return output.root.item<double>();
}

class GptHalfPrecision : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType type() const { return GetParam(); }
  double unit_roundoff() const { return type() == at::kBFloat16 ? 0x1p-8 : 0x1p-11; }
};

/// A pass rounds about twenty times per layer. Errors that add up at random stay below 16·u of each
/// gradient's norm.
TEST_P(GptHalfPrecision, IsNearFloat64OnTheSameWeights) {
  for (TransformerConfig config : {gpt2(), llama()}) {
    for (const bool fp32_residual : {false, true}) {
      config.fp32_residual_connection = fp32_residual;
      const Trained half = model_of(config, type()), exact = model_of(config, at::kDouble);
      for (std::size_t i = 0; i < half.store->parameters().size(); ++i)
        at::Tensor(exact.store->parameters()[i]->value())
            .copy_(half.store->parameters()[i]->value());
      const Microbatch microbatch = patterned_batch(2, 16, config.vocab_size);
      const double loss = step(half, microbatch), exact_loss = step(exact, microbatch);
      EXPECT_NEAR(loss, exact_loss, 2 * unit_roundoff() * exact_loss);
      for (std::size_t i = 0; i < half.store->parameters().size(); ++i) {
        const Parameter &mine = *half.store->parameters()[i],
                        &other = *exact.store->parameters()[i];
        EXPECT_EQ(mine.grad().scalar_type(), at::kFloat);
        const double error = (mine.grad().to(at::kDouble) - other.grad()).norm().item<double>();
        EXPECT_LE(error, 16 * unit_roundoff() * other.grad().norm().item<double>()) << mine.name();
      }
    }
  }
}

struct OutputTypes : UnitHooks {
  std::map<std::string, at::ScalarType> types;
  void after_forward(const Module& unit, const at::Tensor& output) override {
    types[unit.path()] = output.scalar_type();
  }
};

TEST_P(GptHalfPrecision, TheResidualStreamIsFloat32OnRequest) {
  for (const bool fp32_residual : {false, true}) {
    TransformerConfig config = gpt2();
    config.fp32_residual_connection = fp32_residual;
    const Trained trained = model_of(config, type());
    OutputTypes outputs;
    const UnitHooksScope hooked(*trained.model, outputs);
    trained.model->forward_step(patterned_batch(2, 6, config.vocab_size), /*training=*/true);
    const at::ScalarType stream = fp32_residual ? at::kFloat : type();
    const std::map<std::string, at::ScalarType> expected = {{"embedding", stream},
                                                            {"decoder.layers.0", stream},
                                                            {"decoder.layers.1", stream},
                                                            {"decoder.final_layernorm", type()}};
    EXPECT_EQ(outputs.types, expected);
  }
}

/// The residual behind post-norm layers is what a norm returns.
TEST_P(GptHalfPrecision, StagesOfPostNormLayersSendTheTypeOfTheWeights) {
  TransformerConfig config = gpt2();
  config.norm_placement = NormPlacement::post;
  config.fp32_residual_connection = true;
  const PipelineLayout layout{.num_chunks = 3,
                              .stages = {{.has_embedding = true},
                                         {.num_layers = 1},
                                         {.first_layer = 1, .num_layers = 1, .has_output = true}}};
  const auto model =
      make_gpt_model(config, Rank{}, {.vocab_pad_multiple = 8, .dtype = type(), .layout = &layout});
  ParamStore store(declared_parameters(*model), {.dtype = type(), .grad_dtype = at::kFloat});
  store.initialize(3);
  const Microbatch batch = patterned_batch(2, 6, config.vocab_size);
  Activations rows;
  for (std::int64_t chunk = 0; chunk < 3; ++chunk) {
    rows = model->forward_chunk(chunk, {.microbatch = batch}, rows).activations;
    if (chunk == 2) continue;
    EXPECT_EQ(rows.front().scalar_type(), chunk == 0 ? at::kFloat : type());
  }
}

TEST_P(GptHalfPrecision, StatesGiveTheLogitsOfTheFullPass) {
  const TransformerConfig config = llama();
  const Trained trained = model_of(config, type());
  const at::Tensor tokens = (at::arange(16) * 5 % 61).view({2, 8});
  const at::Tensor full = model_logits(*trained.model, tokens);
  EXPECT_EQ(full.scalar_type(), at::kFloat);
  const OwnedCaches caches(2);
  std::vector<at::Tensor> parts = {model_logits(*trained.model, tokens.narrow(1, 0, 5), &caches)};
  for (std::int64_t i = 5; i < 8; ++i)
    parts.push_back(
        model_logits(*trained.model, tokens.narrow(1, i, 1), &caches, Wants::last_logits));
  EXPECT_LT((at::cat(parts, 1) - full).norm().item<double>(),
            8 * unit_roundoff() * full.norm().item<double>());
}

INSTANTIATE_TEST_SUITE_P(Types, GptHalfPrecision, testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& info) {
                           return info.param == at::kBFloat16 ? "bfloat16" : "float16";
                         });

}  // namespace
}  // namespace megatron
