// The operators of recurrent layers: their gradients against central differences in float64, what
// pieces keep apart, and what states carry on.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/ops/causal_conv.h"
#include "megatron/ops/gated_norm.h"
#include "megatron/ops/linear_attention.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

/// Inputs of linear attention whose gates are functions of leaves, so that they stay in range.
struct Leaves {
  explicit Leaves(std::int64_t s, std::int64_t b = 1)
      : q(random_input({s, b, 2, 5}, 1, 1)),
        k(random_input({s, b, 2, 5}, 0.4, 2)),
        v(random_input({s, b, 4, 3}, 1, 3)),
        g(random_input({s, b, 4}, 1, 4)),
        beta(random_input({s, b, 4}, 1, 5)) {}
  LinearAttentionInputs inputs() const { return {q, k, v, -g.square(), beta.sigmoid()}; }
  std::vector<at::Tensor> all() const { return {q, k, v, g, beta}; }
  at::Tensor q, k, v, g, beta;
};

TEST(LinearAttentionOp, GradientsAreThoseOfTheForward) {
  for (const bool delta_rule : {false, true}) {
    for (const bool normalizes : {false, true}) {
      const Leaves leaves(70, 2);
      const LinearAttentionOptions options{
          .rule = {.delta_rule = delta_rule, .normalizes_qk = normalizes, .q_scale = 0.6},
          .pieces = {{.column = 0, .row = 0, .count = 66, .position = 30},
                     {.column = 1, .row = 2, .count = 68}},
          .initial_states = random_input({2, 4, 5, 3}, 1, 6).detach()};
      check_gradients([&] { return weighted_sum(linear_attention(leaves.inputs(), options).out); },
                      leaves.all(), nullptr, {.tolerance = 1e-7});
    }
  }
}

TEST(LinearAttentionOp, StatesCarryOnRowByRow) {
  const at::NoGradGuard no_grad;
  const Leaves leaves(9);
  for (const bool delta_rule : {false, true}) {
    const LinearAttentionRule rule{.delta_rule = delta_rule};
    const at::Tensor whole = linear_attention(leaves.inputs(), {.rule = rule}).out;
    at::Tensor state;
    for (std::int64_t row = 0; row < 9; ++row) {
      const LinearAttentionInputs all = leaves.inputs();
      const auto one = [row](const at::Tensor& x) { return x.narrow(0, row, 1); };
      const LinearAttentionResult step =
          linear_attention({one(all.q), one(all.k), one(all.v), one(all.g), one(all.beta)},
                           {.rule = rule,
                            .pieces = {{.count = 1, .position = row}},
                            .initial_states = state,
                            .wants_final_states = true});
      EXPECT_LT(difference(step.out, one(whole)), 1e-13) << row;
      state = step.final_states;
    }
  }
}

/// Rows of a piece depend on no other piece, and rows in none are zeros.
TEST(LinearAttentionOp, PiecesAreApart) {
  const at::NoGradGuard no_grad;
  const Leaves leaves(12);
  const LinearAttentionInputs all = leaves.inputs();
  const at::Tensor both =
      linear_attention(all, {.pieces = {{.row = 5, .count = 6}, {.row = 0, .count = 4}}}).out;
  const auto part = [](const at::Tensor& x) { return x.narrow(0, 5, 6); };
  const at::Tensor alone =
      linear_attention({part(all.q), part(all.k), part(all.v), part(all.g), part(all.beta)}, {})
          .out;
  EXPECT_TRUE(at::equal(both.narrow(0, 5, 6), alone));
  EXPECT_EQ(both.narrow(0, 4, 1).abs().max().item<double>(), 0);
  EXPECT_EQ(both.narrow(0, 11, 1).abs().max().item<double>(), 0);
}

TEST(CausalConvOp, GradientsAreThoseOfTheForward) {
  for (const bool silu : {false, true}) {
    const at::Tensor wide = random_input({9, 2, 8}), weight = random_input({5, 4}, 1, 1),
                     bias = random_input({5}, 1, 2);
    const CausalConvOptions options{
        .silu = silu,
        .pieces = {{.column = 0, .row = 1, .count = 8}, {.column = 1, .row = 0, .count = 2}},
        .initial_states = random_input({2, 5, 3}, 1, 3).detach()};
    check_gradients(
        [&] { return weighted_sum(causal_conv(wide.narrow(2, 2, 5), weight, bias, options).out); },
        {wide, weight, bias}, nullptr);
  }
}

TEST(CausalConvOp, StatesCarryOn) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = random_input({7, 1, 3}), weight = random_input({3, 4}, 1, 1);
  const at::Tensor whole = causal_conv(x, weight, {}, {}).out;
  const CausalConvResult first =
      causal_conv(x.narrow(0, 0, 2), weight, {}, {.wants_final_states = true});
  const CausalConvResult rest =
      causal_conv(x.narrow(0, 2, 5), weight, {},
                  {.initial_states = first.final_states, .wants_final_states = true});
  EXPECT_TRUE(at::equal(at::cat({first.out, rest.out}), whole));
  EXPECT_TRUE(at::equal(rest.final_states[0], x.select(1, 0).narrow(0, 4, 3).t()));
}

TEST(GatedNormOp, GradientsAreThoseOfTheForward) {
  for (const bool norm_before_gate : {false, true}) {
    for (const std::int64_t weights : {4, 12}) {
      const at::Tensor x = random_input({3, 2, 12}), z = random_input({3, 2, 14}, 1, 1),
                       weight = random_input({weights}, 1, 2);
      const GatedNormOptions options{
          .group_size = 4, .norm_before_gate = norm_before_gate, .offset = 1};
      check_gradients(
          [&] { return weighted_sum(gated_norm(x, z.narrow(2, 1, 12), weight, options)); },
          {x, z, weight}, nullptr);
    }
  }
}

TEST(RowPieces, AreTheRunsOfDocuments) {
  const at::Tensor ids = at::tensor({4, 4, 5, 7, 7, 7}, at::kInt).view({2, 3});
  const RowPieces pieces = document_pieces(ids);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(flat_pieces(pieces, random_input({3, 2})),
            (std::vector<std::int64_t>{0, 0, 2, 0, 0, 2, 1, 0, 1, 0, 3, 0}));
}

TEST(RowPieces, MustNotOverlap) {
  const at::Tensor x = random_input({8, 1, 2});
  EXPECT_THROW(flat_pieces({{.row = 0, .count = 4}, {.row = 3, .count = 2}}, x), InternalError);
  EXPECT_THROW(flat_pieces({{.row = 6, .count = 3}}, x), InternalError);
  EXPECT_EQ(flat_pieces({}, x), (std::vector<std::int64_t>{0, 0, 8, 0}));
}

}  // namespace
}  // namespace megatron
