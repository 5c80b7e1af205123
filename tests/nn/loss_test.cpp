// The gradient of the loss has the same bits on every path: computed in backward, in forward under
// an announced loss gradient, kept, or recomputed for an accumulator that asks later.
#include "megatron/nn/loss.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/ops/tensor_parallel_mappings.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/global_tensor.h"
#include "support/gradient_check.h"
#include "support/tensor_ranks.h"

namespace megatron {
namespace {

constexpr double kScale = 0.37;

struct Way {
  const char* name;
  bool loss_gradient, at_once, deferred;
};

constexpr Way kWays[] = {{"in backward", false, false, false},
                         {"in backward, the weight's later", false, false, true},
                         {"loss_gradient", true, false, false},
                         {"loss_gradient, the weight's later", true, false, true},
                         {"loss_gradient and written at once", true, true, false}};

struct Problem {
  std::int64_t vocabulary, tokens;
  c10::ScalarType type;
  std::int64_t tp = 1;
  ParameterKind kind = ParameterKind::trained;
};

struct Gradients {
  at::Tensor token_losses, dhidden, dbias, dweight;
};

/// Runs two microbatches, so that gradients are also accumulated.
Gradients solve(const Problem& problem, const Way& way) {
  Gradients result;
  GlobalTensors gradients;
  on_tensor_ranks({.tp = problem.tp}, [&](const Rank& rank, Communicators&) {
    BareModule model;
    Parameter& weight = model.add("weight",
                                  {.sharding = Sharding::vocabulary({problem.vocabulary, 4}, 4),
                                   .init = Init::normal(1),
                                   .tags = {},
                                   .kind = problem.kind},
                                  rank.tp);
    Parameter& bias = model.add(
        "bias", {Sharding::vocabulary({problem.vocabulary}, 4), Init::normal(1), {}}, rank.tp);
    ParamStore store(declared_parameters(model),
                     {.dtype = problem.type,
                      .grad_dtype = problem.type == at::kDouble ? at::kDouble : at::kFloat});
    store.initialize(5);
    store.zero_gradients();
    const at::Tensor labels = at::arange(problem.tokens, at::kLong) * 7919 % problem.vocabulary;
    const at::Tensor mask = (at::arange(problem.tokens) % 5 != 0).to(at::kFloat) * 0.5;
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      const at::Tensor hidden = (random_input({problem.tokens, 4}).detach() * (microbatch + 1))
                                    .to(problem.type)
                                    .set_requires_grad(true);
      const at::Tensor scale = at::scalar_tensor(kScale * (microbatch + 1), at::kDouble);
      LossGradient loss_gradient;
      if (way.loss_gradient)
        loss_gradient = {.value = scale, .accumulates_in_forward = way.at_once};
      const TokenLoss loss =
          linear_cross_entropy(copy_to_tensor_parallel_region(hidden, rank.tp, "hidden"),
                               {weight, &bias}, labels, mask, loss_gradient);
      std::vector<std::function<void()>> later;
      {
        std::optional<ParamStore::Deferral> deferral;
        if (way.deferred) deferral.emplace(store, later);
        loss.loss_sum.backward(scale.to(loss.loss_sum.scalar_type()));
      }
      EXPECT_EQ(later.size(), way.deferred ? 1 + int{weight.is_trained()} : 0);
      const at::NoGradGuard no_grad;
      for (const auto& write : later) write();
      if (rank.index == 0) result = {loss.token_losses, hidden.grad(), {}, {}};
    }
    store.finalize_gradients();
    gradients.put(bias, bias.grad());
    if (weight.is_trained()) gradients.put(weight, weight.grad());
  });
  result.dbias = gradients.take().at("bias");
  if (problem.kind == ParameterKind::trained) result.dweight = gradients.take().at("weight");
  return result;
}

void expect_same_bits(const Problem& problem) {
  const Gradients first = solve(problem, kWays[0]);
  EXPECT_GT(first.dhidden.abs().max().item<double>(), 0);
  for (const Way& way : kWays) {
    const Gradients other = solve(problem, way);
    EXPECT_TRUE(at::equal(other.token_losses, first.token_losses)) << way.name;
    EXPECT_TRUE(at::equal(other.dhidden, first.dhidden)) << way.name;
    EXPECT_TRUE(at::equal(other.dbias, first.dbias)) << way.name;
    EXPECT_TRUE(at::equal(other.dweight, first.dweight)) << way.name;
  }
}

TEST(Loss, GradientsDoNotDependOnTheWay) {
  for (const c10::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    for (const std::int64_t tp : {1, 2, 4}) {
      SCOPED_TRACE(testing::Message() << c10::toString(type) << " on " << tp << " ranks");
      expect_same_bits({.vocabulary = 9, .tokens = 13, .type = type, .tp = tp});
    }
  }
}

TEST(Loss, AFrozenWeightChangesNoOtherGradient) {
  for (const std::int64_t tp : {1, 2}) {
    const Problem trained{.vocabulary = 9, .tokens = 13, .type = at::kFloat, .tp = tp};
    Problem frozen = trained;
    frozen.kind = ParameterKind::frozen;
    const Gradients expected = solve(trained, kWays[0]);
    for (const Way& way : kWays) {
      const Gradients got = solve(frozen, way);
      EXPECT_TRUE(at::equal(got.token_losses, expected.token_losses)) << way.name;
      EXPECT_TRUE(at::equal(got.dhidden, expected.dhidden)) << way.name;
      EXPECT_TRUE(at::equal(got.dbias, expected.dbias)) << way.name;
    }
  }
}

/// Uses four blocks of tokens, of which three are kept.
TEST(Loss, BlocksThatWereNotKeptAreComputedAgain) {
  expect_same_bits({.vocabulary = std::int64_t{1} << 19, .tokens = 112, .type = at::kFloat});
}

/// Weighting the single losses is the same as masking the sum with the weights.
TEST(Loss, TokenLossesAreDifferentiable) {
  BareModule model;
  Parameter& weight = model.add("weight", normal_spec({9, 4}));
  ParamStore store(declared_parameters(model), {});
  store.initialize(5);
  const at::Tensor labels = at::arange(6, at::kLong), mask = at::arange(6).to(at::kFloat) * 0.25,
                   weights = (at::arange(6) - 3).to(at::kFloat) * 0.5;
  const auto solve = [&](const at::Tensor& effective_mask, const auto& objective) {
    store.zero_gradients();
    const at::Tensor hidden = random_input({6, 4}).detach().to(at::kFloat).set_requires_grad(true);
    objective(linear_cross_entropy(hidden, weight, labels, effective_mask)).backward();
    store.finalize_gradients();
    return std::pair(hidden.grad(), weight.grad().clone());
  };
  const auto sum = [](const TokenLoss& loss) { return loss.loss_sum; };
  const auto weighted = [&](const TokenLoss& loss) { return (loss.token_losses * weights).sum(); };
  const auto both = [&](const TokenLoss& loss) { return loss.loss_sum * 2 + weighted(loss); };
  const auto expect_same = [](const auto& a, const auto& b) {
    EXPECT_TRUE(at::equal(a.first, b.first));
    EXPECT_TRUE(at::equal(a.second, b.second));
  };
  expect_same(solve(mask, weighted), solve(weights, sum));
  expect_same(solve(mask, both), solve(mask * 2 + weights, sum));
}

/// Two tokens with the announced gradient `loss_gradient`.
struct AnnouncedLoss {
  explicit AnnouncedLoss(const at::Tensor& loss_gradient)
      : store((model.add("weight", normal_spec({5, 4})), declared_parameters(model)), {}) {
    store.initialize(5);
    store.zero_gradients();
    loss = linear_cross_entropy(hidden, *store.find("weight"), at::zeros({2}, at::kLong),
                                at::ones({2}), {.value = loss_gradient})
               .loss_sum;
  }
  BareModule model;
  ParamStore store;
  at::Tensor hidden = at::ones({2, 4}).set_requires_grad(true), loss;
};

TEST(Loss, BackwardMustKeepToWhatWasAnnounced) {
  const AnnouncedLoss told(at::scalar_tensor(2.0));
  EXPECT_THROW((told.loss * 3).backward(), InternalError);
}

/// An announced NaN becomes a NaN in every gradient, which diagnosis then finds. It is not an
/// internal error.
TEST(Loss, ANumberThatIsNoneIsPassedOn) {
  const at::Tensor scale = at::scalar_tensor(std::nan(""));
  const AnnouncedLoss told(scale);
  told.loss.backward(scale);
  EXPECT_TRUE(told.hidden.grad().isnan().all().item<bool>());
}

TEST(Loss, LabelsOutsideTheVocabularyAreRefused) {
  BareModule model;
  Parameter& weight = model.add("weight", normal_spec({5, 4}));
  ParamStore store(declared_parameters(model), {});
  for (const std::int64_t label : {-1, 5}) {
    EXPECT_THROW(linear_cross_entropy(at::ones({1, 4}), weight, at::full({1}, label, at::kLong),
                                      at::ones({1})),
                 InternalError);
  }
}

}  // namespace
}  // namespace megatron
