// Layers over 16-bit numbers against the same layers in float64 (which the gradient tests hold to
// central differences) on the same 16-bit values. Sums are float32 inside and results are rounded
// once, so an element may miss by u·|exact| (u, the unit roundoff: 2⁻⁸ in bfloat16, 2⁻¹¹ in
// float16) plus float32's own error, 2⁻¹⁸ of the largest element: 64 roundings of float32. Main
// gradients are float32 and have no u.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/einsum.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "megatron/base/philox.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/embedding.h"
#include "megatron/nn/linear.h"
#include "megatron/nn/loss.h"
#include "megatron/nn/norm.h"
#include "megatron/ops/core_attention.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/rotary.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

constexpr double kFloatError = 0x1p-18;

double unit_roundoff(at::ScalarType type) {
  return type == at::kBFloat16 ? 0x1p-8 : type == at::kHalf ? 0x1p-11 : 0;
}

/// Checks |actual − exact| ≤ u·(|exact| + spread) + 2⁻¹⁸·max|exact|. `spread` is the size of
/// intermediate values that were also rounded to 16 bits; undefined means none.
void expect_rounded_once(const at::Tensor& actual, const at::Tensor& exact, const std::string& what,
                         double u, const at::Tensor& spread = {}) {
  ASSERT_TRUE(actual.defined() && actual.sizes() == exact.sizes()) << what;
  ASSERT_TRUE(actual.isfinite().all().item<bool>()) << what;
  // The last term: float16 below its normal range.
  at::Tensor bound = exact.abs() * u + exact.abs().max() * kFloatError + 0x1p-25;
  if (spread.defined()) bound = bound + spread * u;
  const at::Tensor excess = (actual.detach().to(at::kDouble) - exact.detach()).abs() / bound;
  EXPECT_LE(excess.max().item<double>(), 1) << what << " of " << actual.numel() << " elements";
}

at::Tensor input_of(at::ScalarType type, at::IntArrayRef shape, double phase = 0,
                    double scale = 1.5) {
  return random_input(shape, scale, phase).detach().to(type);
}

class HalfPrecision : public testing::TestWithParam<at::ScalarType> {
 protected:
  using Layer =
      std::function<at::Tensor(const std::vector<at::Tensor>&, const std::vector<Parameter*>&)>;

  at::ScalarType type() const { return GetParam(); }

  /// Runs `layer` on inputs and parameters of these shapes in 16 bits and in float64, and compares
  /// results and all gradients.
  void check(const Layer& layer, const std::vector<at::Tensor>& inputs,
             const std::vector<Shape>& parameters = {}) {
    BareModule half_model, exact_model;
    std::vector<Parameter*> half, exact;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      half.push_back(&half_model.add("p" + std::to_string(i), normal_spec(parameters[i])));
      exact.push_back(&exact_model.add("p" + std::to_string(i), normal_spec(parameters[i])));
    }
    ParamStore half_store(declared_parameters(half_model),
                          {.dtype = type(), .grad_dtype = at::kFloat}),
        exact_store(declared_parameters(exact_model), {.dtype = at::kDouble});
    half_store.initialize(3);
    for (std::size_t i = 0; i < parameters.size(); ++i)
      at::Tensor(exact[i]->value()).copy_(half[i]->value());
    half_store.zero_gradients();
    exact_store.zero_gradients();
    std::vector<at::Tensor> half_inputs, exact_inputs;
    for (const at::Tensor& input : inputs) {
      half_inputs.push_back(input.clone().set_requires_grad(true));
      exact_inputs.push_back(input.to(at::kDouble).set_requires_grad(true));
    }
    const at::Tensor y = layer(half_inputs, half), exact_y = layer(exact_inputs, exact);
    expect_rounded_once(y, exact_y, "result", unit_roundoff(y.scalar_type()));
    const at::Tensor dy = input_of(y.scalar_type(), y.sizes(), 2);
    y.backward(dy);
    exact_y.backward(dy.to(at::kDouble));
    half_store.finalize_gradients();
    exact_store.finalize_gradients();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(half_inputs[i].grad().scalar_type(), inputs[i].scalar_type());
      expect_rounded_once(half_inputs[i].grad(), exact_inputs[i].grad(),
                          "gradient of input " + std::to_string(i),
                          unit_roundoff(inputs[i].scalar_type()));
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      EXPECT_EQ(half[i]->grad().scalar_type(), at::kFloat);
      expect_rounded_once(half[i]->grad(), exact[i]->grad(), "main gradient " + std::to_string(i),
                          0);
    }
  }
};

TEST_P(HalfPrecision, Linear) {
  for (const auto& [rows, in, out] :
       {std::array<std::int64_t, 3>{3, 10, 7}, {70, 66, 130}, {9, 65, 33}, {33, 8, 8}}) {
    const at::Tensor x = input_of(type(), {rows, 2, in});
    check([](const auto& x, const auto& p) { return linear(x[0], *p[0], nullptr); }, {x},
          {{out, in}});
    check([](const auto& x, const auto& p) { return linear(x[0], *p[0], p[1]); }, {x},
          {{out, in}, {out}});
  }
}

TEST_P(HalfPrecision, LinearReadsAFloatInput) {
  BareModule model;
  Parameter& weight = model.add("weight", normal_spec({6, 4}));
  ParamStore store(declared_parameters(model), {.dtype = type(), .grad_dtype = at::kFloat});
  store.initialize(1);
  const at::Tensor x = input_of(at::kFloat, {3, 4}).set_requires_grad(true);
  const at::Tensor y = linear(x, weight, nullptr);
  EXPECT_TRUE(at::equal(y, linear(x.detach().to(type()), weight, nullptr)));
  y.backward(at::ones_like(y));
  EXPECT_EQ(x.grad().scalar_type(), at::kFloat);
}

/// Adds many small contributions to a large main gradient. 16-bit accumulation would lose all of
/// them.
TEST_P(HalfPrecision, WeightGradientsAccumulateInFloat32) {
  BareModule model;
  Parameter& weight = model.add("weight", normal_spec({2, 4}));
  ParamStore store(declared_parameters(model), {.dtype = type(), .grad_dtype = at::kFloat});
  store.initialize(1);
  store.zero_gradients();
  const auto step = [&](double size) {
    const at::Tensor y = linear(at::ones({2, 4}, type()), weight, nullptr);
    y.backward(at::full_like(y, size));
  };
  step(512);
  for (int i = 0; i < 100; ++i) step(0.25);
  store.finalize_gradients();
  EXPECT_TRUE(at::equal(weight.grad(), at::full({2, 4}, 2 * (512 + 25.0), at::kFloat)));
}

TEST_P(HalfPrecision, Norms) {
  for (const std::int64_t columns : {7, 96}) {
    for (const at::ScalarType input :
         {type(), at::kFloat}) {  // float32: the residual stream of --fp32-residual-connection
      for (const bool plus_one : {false, true}) {
        const at::Tensor x = input_of(input, {5, 3, columns});
        const NormOptions rms{
            .kind = Normalization::RMSNorm, .epsilon = 1e-3, .weight_plus_one = plus_one};
        const NormOptions layer{
            .kind = Normalization::LayerNorm, .epsilon = 1e-3, .weight_plus_one = plus_one};
        check([&](const auto& x, const auto& p) { return norm(x[0], *p[0], nullptr, rms); }, {x},
              {{columns}});
        check([&](const auto& x, const auto& p) { return norm(x[0], *p[0], p[1], layer); }, {x},
              {{columns}, {columns}});
      }
    }
  }
}

TEST_P(HalfPrecision, RotaryEmbedding) {
  const at::Tensor angles =
      at::outer(at::arange(5, at::kDouble), at::tensor({1.0, 0.1}, at::kDouble));
  const at::Tensor x = input_of(type(), {5, 2, 3, 6});
  for (const bool interleaved : {false, true}) {
    check(
        [&](const auto& x, const auto&) {
          const at::ScalarType table = x[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
          return apply_rotary(x[0], angles.cos().to(table), angles.sin().to(table), interleaved);
        },
        {x});
  }
}

TEST_P(HalfPrecision, Dropout) {
  const DropoutSite site{.probability = 0.3,
                         .key = philox_key(9, "site"),
                         .sample_ordinals = at::tensor({5, 3}, at::kLong)};
  const at::Tensor x = input_of(type(), {4, 2, 70});
  check([&](const auto& x, const auto&) { return dropout(x[0], site); }, {x});
  for (const at::ScalarType residual : {type(), at::kFloat})
    check([&](const auto& x, const auto&) { return dropout_add(x[0], x[1], site); },
          {x, input_of(residual, {4, 2, 70}, 1)});
  const at::Tensor stream = input_of(at::kFloat, {4, 2, 70}, 1);
  EXPECT_EQ(dropout_add(x, stream, {}).scalar_type(), at::kFloat);
}

TEST_P(HalfPrecision, Activations) {
  const at::Tensor x = input_of(type(), {3, 2, 40}, 0, 3);
  for (const Activation kind :
       {Activation::gelu, Activation::gelu_tanh, Activation::relu, Activation::squared_relu,
        Activation::silu, Activation::quick_gelu}) {
    check([&](const auto& x, const auto&) { return activate(x[0], {{kind}}); }, {x});
    check(
        [&](const auto& x, const auto&) {
          return activate(x[0], {{kind, /*gated=*/true}});
        },
        {x});
  }
}

/// Returns the absolute sums behind out, dq, dk and dv. Probabilities and gradients of scores enter
/// GEMMs in 16 bits, and so does the result from which backward computes Σ p·dp.
std::array<at::Tensor, 4> attention_spread(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const at::Tensor& dout,
                                           const AttentionOptions& options) {
  const std::int64_t sk = k.size(0), b = k.size(1), g = k.size(2), r = q.size(2) / g;
  const at::Tensor identity = at::eye(sk, at::kDouble).view({sk, 1, 1, sk}).expand({sk, b, g, sk});
  AttentionOptions undropped = options;
  undropped.dropout = {};
  const auto probabilities = [&](const AttentionOptions& o) {
    return core_attention(q, k, identity, o).out.view({q.size(0), b, q.size(2), sk});
  };
  const auto of_heads = [r](const at::Tensor& x) { return x.abs().repeat_interleave(r, 2); };
  const auto of_groups = [&](const at::Tensor& x) { return x.view({sk, b, g, r, -1}).sum(3); };
  const at::Tensor kept = probabilities(options), whole = probabilities(undropped),
                   d = dout.view({q.size(0), b, q.size(2), -1}).abs();
  const at::Tensor out = at::einsum("qbnk,kbnc->qbnc", {kept, of_heads(v)}),
                   delta = (d * out).sum(-1, true);
  const at::Tensor ds =
      options.scale * (kept * at::einsum("qbnc,kbnc->qbnk", {d, of_heads(v)}) + 3 * whole * delta);
  return {out.flatten(2), at::einsum("qbnk,kbnc->qbnc", {ds, of_heads(k)}),
          of_groups(at::einsum("qbnk,qbnc->kbnc", {ds, q.abs()})),
          of_groups(at::einsum("qbnk,qbnc->kbnc", {kept, d}))};
}

TEST_P(HalfPrecision, Attention) {
  AttentionOptions plain, windowed, dropped;
  plain.scale = windowed.scale = dropped.scale = 0.3;
  windowed.window = {3, 0};
  windowed.softcap = 5;
  windowed.alibi_slopes = at::tensor({0.5, 0.25, 0.125, 0.0625}, at::kDouble);
  dropped.dropout = {.probability = 0.2,
                     .key = philox_key(9, "attention"),
                     .sample_ordinals = at::tensor({5, 3}, at::kLong)};
  const std::vector<at::Tensor> inputs{input_of(type(), {12, 2, 4, 16}),
                                       input_of(type(), {12, 2, 2, 16}, 1),
                                       input_of(type(), {12, 2, 2, 16}, 2)};
  for (const AttentionOptions& options : {plain, windowed, dropped}) {
    std::vector<at::Tensor> half, exact;
    for (const at::Tensor& x : inputs) {
      half.push_back(x.clone().set_requires_grad(true));
      exact.push_back(x.to(at::kDouble).set_requires_grad(true));
    }
    const at::Tensor out = core_attention(half[0], half[1], half[2], options).out,
                     exact_out = core_attention(exact[0], exact[1], exact[2], options).out;
    const at::Tensor dout = input_of(type(), out.sizes(), 2);
    out.backward(dout);
    exact_out.backward(dout.to(at::kDouble));
    const auto spread = attention_spread(exact[0].detach(), exact[1].detach(), exact[2].detach(),
                                         dout.to(at::kDouble), options);
    expect_rounded_once(out, exact_out, "result", unit_roundoff(type()), spread[0]);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(half[i].grad().scalar_type(), type());
      expect_rounded_once(half[i].grad(), exact[i].grad(), "gradient of input " + std::to_string(i),
                          unit_roundoff(type()), spread[i + 1]);
    }
  }
}

TEST_P(HalfPrecision, EmbeddingGradientsAreFloat32) {
  const at::Tensor ids = at::tensor({0, 4, 4, 4, 2, 4}, at::kLong).view({3, 2});
  check([&](const auto&, const auto& p) { return embedding_lookup(ids, *p[0]); }, {}, {{5, 8}});
}

/// Only the gradient of the logits is rounded on the way. It allows u·Σ|d logits·w| and u·Σ|d
/// logits·hidden|.
TEST_P(HalfPrecision, CrossEntropy) {
  constexpr std::int64_t kTokens = 40, kHidden = 34, kVocabulary = 131;
  BareModule half_model, exact_model;
  Parameter& half = half_model.add(
      "weight", {Sharding::vocabulary({kVocabulary, kHidden}, 128), Init::normal(0.3), {}});
  Parameter& exact = exact_model.add(
      "weight", {Sharding::vocabulary({kVocabulary, kHidden}, 128), Init::normal(0.3), {}});
  ParamStore half_store(declared_parameters(half_model),
                        {.dtype = type(), .grad_dtype = at::kFloat}),
      exact_store(declared_parameters(exact_model), {.dtype = at::kDouble});
  half_store.initialize(3);
  at::Tensor(exact.value()).copy_(half.value());
  half_store.zero_gradients();
  exact_store.zero_gradients();
  const at::Tensor hidden = input_of(type(), {kTokens, kHidden}).set_requires_grad(true);
  const at::Tensor exact_hidden = hidden.detach().to(at::kDouble).set_requires_grad(true);
  const at::Tensor labels = at::arange(kTokens, at::kLong) * 3, mask = at::ones({kTokens});
  const TokenLoss loss = linear_cross_entropy(hidden, half, labels, mask),
                  exact_loss = linear_cross_entropy(exact_hidden, exact, labels, mask);
  EXPECT_EQ(loss.loss_sum.scalar_type(), at::kFloat);
  expect_rounded_once(loss.loss_sum, exact_loss.loss_sum, "loss", 0);
  expect_rounded_once(loss.token_losses, exact_loss.token_losses.to(at::kDouble),
                      "losses of tokens", 0);
  loss.loss_sum.backward(at::tensor(64.0f).squeeze());
  exact_loss.loss_sum.backward(at::tensor(64.0, at::kDouble).squeeze());
  half_store.finalize_gradients();
  exact_store.finalize_gradients();
  const at::Tensor w = exact.value().narrow(0, 0, kVocabulary);
  at::Tensor dlogits = at::softmax(at::mm(exact_hidden.detach(), w.t()), 1);
  dlogits.scatter_add_(1, labels.unsqueeze(1), at::full({kTokens, 1}, -1, at::kDouble));
  dlogits = dlogits.abs() * 64;
  expect_rounded_once(hidden.grad(), exact_hidden.grad(), "gradient of hidden",
                      unit_roundoff(type()), at::mm(dlogits, w.abs()));
  const at::Tensor spread =
      at::mm(dlogits.t(), exact_hidden.detach().abs()) * unit_roundoff(type());
  const at::Tensor rows = half.grad().narrow(0, 0, kVocabulary),
                   exact_rows = exact.grad().narrow(0, 0, kVocabulary);
  EXPECT_LE(
      ((rows.to(at::kDouble) - exact_rows).abs() / (spread + exact_rows.abs().max() * kFloatError))
          .max()
          .item<double>(),
      1)
      << "main gradient";
}

INSTANTIATE_TEST_SUITE_P(Types, HalfPrecision, testing::Values(at::kBFloat16, at::kHalf),
                         [](const auto& info) {
                           return info.param == at::kBFloat16 ? "bfloat16" : "float16";
                         });

}  // namespace
}  // namespace megatron
