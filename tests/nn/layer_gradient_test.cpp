// Float64 gradient checks of the layers that work on each position: linear, norms, activations,
// MLP, embedding, loss.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include "megatron/base/philox.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/embedding.h"
#include "megatron/nn/linear.h"
#include "megatron/nn/loss.h"
#include "megatron/nn/mlp.h"
#include "megatron/nn/norm.h"
#include "megatron/ops/dropout.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

const ParamStore::Options kDouble{.dtype = at::kDouble};

TEST(LayerGradient, Linear) {
  for (const bool with_bias : {false, true}) {
    BareModule model;
    Parameter& weight = model.add("weight", normal_spec({5, 4}));
    Parameter* bias = with_bias ? &model.add("bias", normal_spec({5})) : nullptr;
    ParamStore store(declared_parameters(model), kDouble);
    store.initialize(1);
    const at::Tensor x = random_input({3, 2, 4});
    const at::Tensor expected = at::matmul(x, weight.value().t()) +
                                (with_bias ? bias->value() : at::zeros({5}, at::kDouble));
    EXPECT_LT(difference(linear(x, weight, bias), expected), 1e-14);
    check_gradients([&] { return weighted_sum(linear(x, weight, bias)); }, {x}, &store);
  }
}

TEST(LayerGradient, Norms) {
  for (const Normalization kind : {Normalization::LayerNorm, Normalization::RMSNorm}) {
    for (const bool plus_one : {false, true}) {
      for (const std::int64_t columns : {7, 64}) {
        BareModule model;
        Parameter& weight = model.add("weight", normal_spec({columns}));
        Parameter* bias =
            kind == Normalization::LayerNorm ? &model.add("bias", normal_spec({columns})) : nullptr;
        ParamStore store(declared_parameters(model), kDouble);
        store.initialize(2);
        const NormOptions options{.kind = kind, .epsilon = 1e-3, .weight_plus_one = plus_one};
        const at::Tensor x = random_input({3, 2, columns});
        const at::Tensor mean =
            bias != nullptr ? x.mean(-1, true) : at::zeros({3, 2, 1}, at::kDouble);
        at::Tensor expected = (x - mean) / ((x - mean).square().mean(-1, true) + 1e-3).sqrt() *
                              (weight.value() + (plus_one ? 1 : 0));
        if (bias != nullptr) expected = expected + bias->value();
        EXPECT_LT(difference(norm(x, weight, bias, options), expected), 1e-13);
        check_gradients([&] { return weighted_sum(norm(x, weight, bias, options)); }, {x}, &store);
      }
    }
  }
}

TEST(LayerGradient, NormOfAStridedInput) {
  for (const Normalization kind : {Normalization::LayerNorm, Normalization::RMSNorm}) {
    BareModule model;
    Parameter& weight = model.add("weight", normal_spec({4}));
    Parameter* bias =
        kind == Normalization::LayerNorm ? &model.add("bias", normal_spec({4})) : nullptr;
    ParamStore store(declared_parameters(model), kDouble);
    store.initialize(2);
    const at::Tensor x = random_input({2, 3, 5, 4});
    check_gradients(
        [&] { return weighted_sum(norm(x.select(2, 3), weight, bias, {.kind = kind})); }, {x},
        &store);
  }
}

/// Rows at given positions have the masks that they have in the whole sequence.
TEST(LayerGradient, DropoutOfRowsAtPositionsIsThatOfTheWhole) {
  DropoutSite site{.probability = 0.3,
                   .key = philox_key(9, "site"),
                   .sample_ordinals = at::tensor({5, 3}, at::kLong)};
  const at::Tensor x = random_input({12, 2, 7}), zeros = at::zeros_like(x);
  const at::Tensor whole = dropout_add(x, zeros, site),
                   rows = at::tensor({3, 4, 5, 9, 10, 11}, at::kLong);
  const at::Tensor mine = x.index_select(0, rows).detach();
  site.positions.each = rows;
  EXPECT_TRUE(at::equal(dropout(mine, site), whole.index_select(0, rows)));
  site.positions = site.positions.slice(2, 3);  // of a rank of sequence parallelism
  EXPECT_TRUE(
      at::equal(dropout(mine.narrow(0, 2, 3), site), whole.index_select(0, rows.narrow(0, 2, 3))));
}

/// The residual sum and its norm, both used afterwards: the fused op has the values and gradients
/// of the separate ops.
TEST(LayerGradient, NormOfASum) {
  const DropoutSite dropped{.probability = 0.3,
                            .key = philox_key(9, "site"),
                            .sample_ordinals = at::tensor({5, 3}, at::kLong),
                            .positions = {.first = 4}};
  DropoutSite placed = dropped;  // two chunks of a sequence
  placed.positions.each = at::cat({at::arange(20, at::kLong), at::arange(60, 80, at::kLong)});
  for (const Normalization kind : {Normalization::LayerNorm, Normalization::RMSNorm}) {
    for (const DropoutSite& site : {dropped, placed, DropoutSite{}}) {
      BareModule model;
      Parameter& weight = model.add("weight", normal_spec({7}));
      Parameter* bias =
          kind == Normalization::LayerNorm ? &model.add("bias", normal_spec({7})) : nullptr;
      ParamStore store(declared_parameters(model), kDouble);
      store.initialize(2);
      const NormWeights weights{
          &weight, bias, {.kind = kind, .epsilon = 1e-3, .weight_plus_one = true}};
      const at::Tensor stream = random_input({40, 2, 7}), branch = random_input({40, 2, 7}, 2);
      const auto both = [&] { return dropout_add_norm(stream, branch, site, weights); };
      const at::Tensor sum = dropout_add(branch, stream, site);
      EXPECT_TRUE(at::equal(both().sum, sum));
      EXPECT_TRUE(at::equal(both().normalised, norm(sum, weight, bias, weights.options)));
      check_gradients(
          [&] {
            const SumAndNorm found = both();
            return weighted_sum(found.sum.sin()) + weighted_sum(found.normalised);
          },
          {stream, branch}, &store);
      check_gradients([&] { return weighted_sum(both().sum); }, {stream, branch}, nullptr);
      check_gradients(
          [&] {
            const SumAndNorm found = norm_with_residual(stream, weights);
            return weighted_sum(found.sum.sin()) + weighted_sum(found.normalised);
          },
          {stream}, &store);
    }
  }
}

constexpr Activation kActivations[] = {Activation::gelu, Activation::gelu_tanh,
                                       Activation::relu, Activation::squared_relu,
                                       Activation::silu, Activation::quick_gelu};

TEST(LayerGradient, Activations) {
  for (const Activation kind : kActivations) {
    const at::Tensor x = random_input({3, 2, 8}, 3);
    check_gradients([&] { return weighted_sum(activate(x, {{kind}})); }, {x}, nullptr);
    check_gradients(
        [&] {
          return weighted_sum(activate(x, {{kind, /*gated=*/true}}));
        },
        {x}, nullptr);
    EXPECT_LT(difference(activate(x, {{kind, /*gated=*/true}}),
                         activate(x.narrow(2, 0, 4), {{kind}}) * x.narrow(2, 4, 4)),
              1e-15);
  }
}

/// Computes f(x + b)·Wᵀ + c with its own weights.
struct ActivatedLinear {
  ActivatedLinear(bool gated, c10::ScalarType type)
      : gated(gated), store((declare(gated), declared_parameters(model)), {.dtype = type}) {
    store.initialize(1);
  }

  BiasActivation activation(Activation kind) const { return {{kind, gated}, before}; }
  at::Tensor at_once(const at::Tensor& x, Activation kind) const {
    return activated_linear(x, activation(kind), *weight, after);
  }
  at::Tensor apart(const at::Tensor& x, Activation kind) const {
    return linear(activate(x, activation(kind)), *weight, after);
  }

  BareModule model;
  Parameter *before = nullptr, *weight = nullptr, *after = nullptr;
  bool gated;
  ParamStore store;

 private:
  void declare(bool gated) {
    before = &model.add("before", normal_spec({gated ? 2 * kFeatures : kFeatures}));
    weight = &model.add("weight", normal_spec({5, kFeatures}));
    after = &model.add("after", normal_spec({5}));
  }
  static constexpr std::int64_t kFeatures = 21;
};

TEST(LayerGradient, ActivatedLinear) {
  for (const bool gated : {false, true}) {
    ActivatedLinear layer(gated, at::kDouble);
    for (const Activation kind : kActivations) {
      const at::Tensor x = random_input({3, 2, gated ? 42 : 21}, 3);
      EXPECT_TRUE(at::equal(layer.at_once(x, kind), layer.apart(x, kind)));
      check_gradients([&] { return weighted_sum(layer.at_once(x, kind)); }, {x}, &layer.store);
    }
  }
}

/// Recomputed values have the same bits in every gradient.
TEST(LayerGradient, ActivatedLinearHasTheBitsOfItsParts) {
  for (const c10::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const bool gated : {false, true}) {
      for (const Activation kind : kActivations) {
        const auto gradients = [&](bool at_once) {
          ActivatedLinear layer(gated, type);
          at::Tensor x =
              random_input({35, 2, gated ? 42 : 21}, 3).to(type).detach().requires_grad_();
          layer.store.zero_gradients();
          const at::Tensor y = at_once ? layer.at_once(x, kind) : layer.apart(x, kind);
          weighted_sum(y.to(at::kFloat)).backward();
          layer.store.finalize_gradients();
          return std::vector<at::Tensor>{y.detach(), x.grad(), layer.before->grad().clone(),
                                         layer.weight->grad().clone(), layer.after->grad().clone()};
        };
        const auto found = gradients(true), expected = gradients(false);
        for (std::size_t i = 0; i < found.size(); ++i)
          EXPECT_TRUE(at::equal(found[i], expected[i])) << i << " of " << c10::toString(type);
      }
    }
  }
}

TransformerConfig small_config() {
  TransformerConfig config;
  config.num_layers = 2;
  config.hidden_size = 6;
  config.num_attention_heads = 2;
  config.kv_channels = 4;
  config.ffn_hidden_size = 5;
  config.vocab_size = 11;
  config.max_position_embeddings = 8;
  config.init_method_std = 0.7;
  return config;
}

void check_mlp(const TransformerConfig& config) {
  const Rank rank;
  BareModule model;
  Mlp mlp(
      &model, "mlp",
      {.config = config, .rank = rank, .has_input_norm = config.activation != Activation::silu});
  ParamStore store(declared_parameters(model), kDouble);
  store.initialize(3);
  const at::Tensor x = random_input({2, 2, 6});
  check_gradients(
      [&] {
        return weighted_sum(mlp.forward(norm_with_residual(x, mlp.input_norm()).normalised, {}));
      },
      {x}, &store);
}

TEST(LayerGradient, Mlp) {
  for (const Activation kind : kActivations) {
    for (const bool gated : {false, true}) {
      TransformerConfig config = small_config();
      config.activation = kind;
      config.gated_linear_unit = gated;
      config.add_bias_linear = !gated;
      config.normalization = gated ? Normalization::RMSNorm : Normalization::LayerNorm;
      check_mlp(config);
    }
  }
}

TEST(LayerGradient, MlpWithClampedGate) {
  TransformerConfig config = small_config();
  config.activation = Activation::quick_gelu;
  config.gated_linear_unit = true;
  config.activation_func_clamp_value = 0.75;
  config.glu_linear_offset = 1;
  check_mlp(config);
}

TEST(LayerGradient, Embedding) {
  TransformerConfig config = small_config();
  const Rank rank;
  BareModule model;
  const LanguageModelEmbedding embedding(&model, config, rank, word_embedding_spec(config, 8), 2);
  ParamStore store(declared_parameters(model), kDouble);
  store.initialize(4);
  const at::Tensor positions = at::arange(3, at::kLong).expand({2, 3});
  Microbatch microbatch;
  microbatch.tensors["tokens"] = at::tensor({0, 10, 3, 3, 3, 1}, at::kLong).view({2, 3});
  microbatch.tensors["types"] = at::tensor({0, 0, 1, 0, 1, 1}, at::kLong).view({2, 3});
  ForwardContext context;
  context.seed = 5;
  context.training = true;
  context.sample_ordinals = at::tensor({7, 9}, at::kLong);
  check_gradients([&] { return weighted_sum(embedding.forward(microbatch, positions, context)); },
                  {}, &store);
}

TEST(LayerGradient, CrossEntropyWithPaddedVocabulary) {
  BareModule model;
  Parameter& weight = model.add("weight", {Sharding::vocabulary({11, 6}, 8), Init::normal(1), {}});
  Parameter& bias = model.add("bias", {Sharding::vocabulary({11}, 8), Init::normal(1), {}});
  ParamStore store(declared_parameters(model), kDouble);
  store.initialize(5);
  ASSERT_EQ(weight.value().size(0), 16);
  const at::Tensor hidden = random_input({5, 6}), labels = at::tensor({0, 10, 3, 3, 1}, at::kLong),
                   mask = at::tensor({1.f, 0.f, 1.f, 1.f, 1.f});
  const auto loss = [&] {
    return linear_cross_entropy(hidden, {weight, &bias}, labels, mask).loss_sum * 1.5;
  };
  check_gradients(loss, {hidden}, &store);
  const at::Tensor logits =
      at::matmul(hidden, weight.value().narrow(0, 0, 11).t()) + bias.value().narrow(0, 0, 11);
  const at::Tensor losses = -at::log_softmax(logits, 1).gather(1, labels.unsqueeze(1)).squeeze(1);
  const TokenLoss result = linear_cross_entropy(hidden, {weight, &bias}, labels, mask);
  EXPECT_LT(difference(result.loss_sum, (losses * mask).sum()), 1e-14);
  EXPECT_LT(difference(result.token_losses, losses), 1e-14);
}

/// Uses a vocabulary so large that logits come in several chunks and blocks.
TEST(LayerGradient, CrossEntropyDoesNotDependOnItsChunks) {
  constexpr std::int64_t kVocabulary = 1 << 19, kTokens = 112;
  BareModule model;
  Parameter& weight = model.add("weight", normal_spec({kVocabulary, 2}));
  ParamStore store(declared_parameters(model), {});
  store.initialize(6);
  const at::Tensor hidden = random_input({kTokens, 2}).detach().to(at::kFloat),
                   labels = at::arange(kTokens, at::kLong) * 4001;
  const at::Tensor mask = at::ones({kTokens});
  const auto run = [&](std::int64_t begin, std::int64_t count) {
    const at::Tensor part = hidden.narrow(0, begin, count).clone().set_requires_grad(true);
    linear_cross_entropy(part, weight, labels.narrow(0, begin, count), mask.narrow(0, begin, count))
        .loss_sum.backward();
    return part.grad();
  };
  store.zero_gradients();
  const at::Tensor whole = run(0, kTokens);
  store.finalize_gradients();
  const at::Tensor whole_weight = weight.grad().clone();
  store.zero_gradients();
  for (std::int64_t begin = 0; begin < kTokens; begin += 8)
    EXPECT_LT(difference(run(begin, 8), whole.narrow(0, begin, 8)), 1e-5);
  store.finalize_gradients();
  EXPECT_LT(difference(weight.grad(), whole_weight), 1e-5);
}

}  // namespace
}  // namespace megatron
