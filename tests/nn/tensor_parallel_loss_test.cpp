// Cross entropy over a sharded vocabulary has the losses and gradients of one rank, whatever part
// of the vocabulary each rank holds.
#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "megatron/nn/embedding.h"
#include "megatron/nn/loss.h"
#include "megatron/ops/tensor_parallel_mappings.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/global_tensor.h"
#include "support/gradient_check.h"
#include "support/tensor_ranks.h"

namespace megatron {
namespace {

struct LossResult {
  at::Tensor loss_sum, token_losses, dhidden, weight, dweight;
};

struct Problem {
  std::int64_t vocabulary, pad_multiple;
  at::Tensor hidden, labels, mask;
  double scale = 1;
};

LossResult solve(const Problem& problem, std::int64_t tp, c10::ScalarType type) {
  LossResult result;
  GlobalTensors weights, gradients;
  on_tensor_ranks({.tp = tp}, [&](const Rank& rank, Communicators&) {
    BareModule model;
    const Shape shape{problem.vocabulary, problem.hidden.size(1)};
    Parameter& weight = model.add(
        "weight", {Sharding::vocabulary(shape, problem.pad_multiple), Init::normal(1), {}},
        rank.tp);
    ParamStore store(declared_parameters(model), {.dtype = type});
    store.initialize(5);
    store.zero_gradients();
    const at::Tensor hidden = problem.hidden.detach().to(type).set_requires_grad(true);
    const TokenLoss loss =
        linear_cross_entropy(copy_to_tensor_parallel_region(hidden, rank.tp, "hidden"), weight,
                             problem.labels, problem.mask);
    (loss.loss_sum * problem.scale).backward();
    store.finalize_gradients();
    weights.put(weight, weight.value());
    gradients.put(weight, weight.grad());
    if (rank.index == 0)
      result = {loss.loss_sum.detach(), loss.token_losses, hidden.grad(), {}, {}};
  });
  result.weight = weights.take().at("weight");
  result.dweight = gradients.take().at("weight");
  return result;
}

void expect_same(const LossResult& actual, const LossResult& expected, double tolerance) {
  EXPECT_LE(difference(actual.loss_sum, expected.loss_sum), tolerance);
  EXPECT_LE(difference(actual.token_losses, expected.token_losses),
            std::max(tolerance, 1e-7));  // float32
  EXPECT_LE(difference(actual.dhidden, expected.dhidden), tolerance);
  EXPECT_LE(difference(actual.dweight, expected.dweight), tolerance);
}

/// 11 rows on 4 ranks: 4, 4, 3, none; and one rank with a single row.
TEST(TensorParallelLoss, EqualsOneRank) {
  for (const std::int64_t vocabulary : {11, 9, 2, 64}) {
    Problem problem{.vocabulary = vocabulary,
                    .pad_multiple = 4,
                    .hidden = random_input({5, 6}),
                    .labels = at::tensor({0, 1, 3, 8, 10}, at::kLong) % vocabulary,
                    .mask = at::tensor({1.f, 0.f, 1.f, 1.f, 1.f}),
                    .scale = 1.5};
    const LossResult one = solve(problem, 1, at::kDouble);
    for (const std::int64_t tp : {2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << vocabulary << " rows on " << tp << " ranks");
      expect_same(solve(problem, tp, at::kDouble), one, 1e-13);
    }
  }
}

/// Logits in several chunks and blocks. A row's gradient is Σ (p − 1 where it is the label)·hidden.
TEST(TensorParallelLoss, ManyLogitsGiveTheGradient) {
  constexpr std::int64_t kTokens = 208, kStep = 2503;
  const at::Tensor labels = at::arange(kTokens, at::kLong) * kStep;
  const Problem problem{.vocabulary = std::int64_t{1} << 19,
                        .pad_multiple = 1,
                        .hidden = random_input({kTokens, 2}),
                        .labels = labels,
                        .mask = at::ones({kTokens})};
  const LossResult result = solve(problem, 2, at::kFloat);
  const at::Tensor hidden = problem.hidden.detach(),
                   rows = at::arange(0, problem.vocabulary, 997, at::kLong);
  const auto logits = [&](const at::Tensor& which) {
    return at::matmul(hidden, result.weight.index_select(0, which).to(at::kDouble).t());
  };
  const at::Tensor lse = logits(labels).diagonal() + result.token_losses;
  const auto expect_gradient = [&](const at::Tensor& which) {
    const at::Tensor dlogits = at::exp(logits(which) - lse.unsqueeze(1)) -
                               (labels.unsqueeze(1) == which.unsqueeze(0)).to(at::kDouble);
    EXPECT_LE(difference(result.dweight.index_select(0, which).to(at::kDouble),
                         at::matmul(dlogits.t(), hidden)),
              1e-6);
  };
  expect_gradient(rows);
  expect_gradient(labels);
}

/// Logits of very different size: no rank may use only its own maximum.
TEST(TensorParallelLoss, LargeLogitsDoNotOverflow) {
  Problem problem{.vocabulary = 8,
                  .pad_multiple = 1,
                  .hidden = at::full({2, 3}, 1e3),
                  .labels = at::tensor({0, 7}, at::kLong),
                  .mask = at::ones({2})};
  const LossResult one = solve(problem, 1, at::kFloat), many = solve(problem, 4, at::kFloat);
  EXPECT_TRUE(at::isfinite(many.token_losses).all().item<bool>());
  expect_same(many, one, 1e-5);
}

TEST(TensorParallelEmbedding, RanksHoldDifferentRows) {
  const at::Tensor ids = at::tensor({0, 10, 3, 3, 8, 4}, at::kLong).view({2, 3});
  GlobalTensors gradients;
  std::vector<at::Tensor> rows(3);
  on_tensor_ranks({.tp = 3}, [&](const Rank& rank, Communicators&) {
    BareModule model;
    Parameter& weight =
        model.add("weight", {Sharding::vocabulary({11, 2}, 4), Init::normal(1), {}}, rank.tp);
    ParamStore store(declared_parameters(model), {.dtype = at::kDouble});
    store.initialize(5);
    store.zero_gradients();
    const at::Tensor mine = embedding_lookup(ids, weight);
    rows[static_cast<std::size_t>(rank.index)] = mine.detach();
    mine.backward(at::ones({2, 3, 2}, at::kDouble));
    store.finalize_gradients();
    gradients.put(weight, weight.grad());
  });
  const at::Tensor counts = at::bincount(ids.view({-1}), {}, 11).to(at::kDouble);
  EXPECT_TRUE(at::equal(gradients.take().at("weight"), counts.unsqueeze(1).expand({11, 2})));
  const at::Tensor owners =
      (rows[0] != 0).to(at::kInt) + (rows[1] != 0).to(at::kInt) + (rows[2] != 0).to(at::kInt);
  EXPECT_TRUE(owners.eq(1).all().item<bool>());
}

}  // namespace
}  // namespace megatron
