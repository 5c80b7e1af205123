// Recomputation and offload keep less and return the same gradients.
#include "megatron/ops/recompute.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/offload_file.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/offloaded_activations.h"

namespace megatron {
namespace {

at::Tensor numbers(std::int64_t count) {
  return at::arange(1, count + 1, at::kDouble).set_requires_grad(true);
}

/// Counts what the op square() does.
struct Calls {
  int computed = 0;
};

/// Returns x², whose backward reads x. It saves x before it computes.
at::Tensor square(const at::Tensor& x, Calls& calls) {
  Recording recording({.name = "SquareBackward"}, {x});
  recording.save({x});
  ++calls.computed;
  return recording.finish(x * x, {}, [](BackwardPass& pass) -> Tensors {
    return {2 * pass.saved[0] * pass.gradients[0]};
  });
}

/// Returns x + 1, which backward can compute again from x.
at::Tensor plus_one(const at::Tensor& x, int& recomputed) {
  Recording recording({.name = "PlusOneBackward"}, {x});
  Recorded recorded{.outputs = {x + 1}, .saved = {x}};
  recorded.recompute_last = [&recomputed](const Tensors& saved) {
    ++recomputed;
    return saved[0] + 1;
  };
  recorded.backward = [](BackwardPass& pass) -> Tensors { return {pass.gradients[0]}; };
  return recording.finish(std::move(recorded)).front();
}

// (x²)² has the gradient 4x³.
TEST(Recompute, RunsForwardAgainUpToTheLastSavedTensor) {
  Calls inner, outer;
  const at::Tensor x = numbers(5);
  const at::Tensor y = recomputed(x, [&](const at::Tensor& input, ForwardReplay&) {
    return square(square(input, inner), outer);
  });
  EXPECT_EQ(inner.computed, 1);
  EXPECT_EQ(outer.computed, 1);
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(4 * x.detach().pow(3)));
  EXPECT_EQ(inner.computed, 2);
  EXPECT_EQ(outer.computed, 1) << "the last op's output is not needed";
}

TEST(Recompute, KeepsNothingBetweenInputAndOutput) {
  Calls calls;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> between;
  const at::Tensor x = numbers(5);
  const at::Tensor y = recomputed(x, [&](const at::Tensor& input, ForwardReplay& replay) {
    const at::Tensor squared = square(input, calls);
    if (!replay.is_second_run()) between = squared.storage().getWeakStorageImpl();
    return square(squared, calls);
  });
  EXPECT_TRUE(between->expired());
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(4 * x.detach().pow(3)));
}

/// Two inputs and two outputs, of which the second has no gradient.
TEST(Recompute, TakesAndReturnsLists) {
  Calls calls;
  const at::Tensor x = numbers(3), factor = numbers(3);
  const Tensors y = recomputed(Tensors{x, factor}, [&](const Tensors& in, ForwardReplay&) {
    return Tensors{square(in[0], calls) + square(square(in[1], calls), calls), in[0] * 2};
  });
  EXPECT_TRUE(y[1].equal(x * 2));
  y[0].sum().backward();
  EXPECT_TRUE(x.grad().equal(2 * x.detach()));
  EXPECT_TRUE(factor.grad().equal(4 * factor.detach().pow(3)));
}

TEST(Recompute, PassesUndefinedInputsOn) {
  Calls calls;
  const at::Tensor x = numbers(3);
  const Tensors y = recomputed(Tensors{x, {}}, [&](const Tensors& in, ForwardReplay&) {
    EXPECT_FALSE(in[1].defined());
    return Tensors{square(square(in[0], calls), calls)};
  });
  y[0].sum().backward();
  EXPECT_TRUE(x.grad().equal(4 * x.detach().pow(3)));
}

TEST(Recompute, SecondRunSeesTheValuesOfTheFirst) {
  Calls calls;
  double count = 0;
  std::vector<double> seen;
  const at::Tensor x = numbers(3);
  const auto step = [&](const at::Tensor& input, ForwardReplay& replay) {
    const at::Tensor factor = replay.keep(at::full({}, count, at::kDouble));
    if (!replay.is_second_run()) ++count;
    seen.push_back(factor.item<double>());
    return square(input * factor, calls);
  };
  const at::Tensor first = recomputed(x, step), second = recomputed(x, step);
  (first + second).sum().backward();
  EXPECT_EQ(count, 2);
  ASSERT_EQ(seen.size(), 4U);
  EXPECT_EQ(seen[0] + seen[1], seen[2] + seen[3]);
  EXPECT_TRUE(x.grad().equal(2 * x.detach()));  // factors 0 and 1
}

TEST(Recompute, WithoutGradientsRunsForwardOnce) {
  Calls calls;
  const at::NoGradGuard no_grad;
  const at::Tensor y =
      recomputed(numbers(2), [&](const at::Tensor& x, ForwardReplay&) { return square(x, calls); });
  EXPECT_EQ(calls.computed, 1);
  EXPECT_TRUE(y.equal(at::tensor({1.0, 4.0})));
}

TEST(Recompute, ASecondRunThatSavesLessIsAnError) {
  Calls calls;
  const at::Tensor x = numbers(2);
  const at::Tensor y = recomputed(x, [&](const at::Tensor& input, ForwardReplay& replay) {
    return replay.is_second_run() ? input : square(square(input, calls), calls);
  });
  EXPECT_THROW(y.sum().backward(), InternalError);
}

TEST(Recompute, NestsInItself) {
  Calls calls;
  const at::Tensor x = numbers(4);
  const auto inner = [&](const at::Tensor& input, ForwardReplay&) { return square(input, calls); };
  const at::Tensor y = recomputed(x, [&](const at::Tensor& input, ForwardReplay&) {
    return recomputed(recomputed(input, inner), inner);
  });
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(4 * x.detach().pow(3)));
}

TEST(RecomputedOutputs, AreComputedForTheirReadersAndNotKept) {
  Calls calls;
  int computed_again = 0;
  const at::Tensor x = numbers(4);
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> output;
  at::Tensor y;
  {
    RecomputedOutputs hooks;
    const SavedTensorHooksScope scope(&hooks);
    const at::Tensor sum = plus_one(x, computed_again);
    output = sum.storage().getWeakStorageImpl();
    y = square(sum, calls) + square(sum.view({2, 2}), calls).view({4});
  }
  EXPECT_TRUE(output->expired());
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(4 * (x.detach() + 1)));
  EXPECT_EQ(computed_again, 1) << "two readers share one computation";
}

TEST(RecomputedOutputs, AreThoseOfARecomputedPassToo) {
  Calls inside, after;
  const at::Tensor x = numbers(4);
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> output;
  at::Tensor y;
  {
    RecomputedOutputs hooks;
    const SavedTensorHooksScope scope(&hooks);
    const Tensors squares = recomputed(
        Tensors{x},
        [&](const Tensors& in, ForwardReplay&) { return Tensors{square(in[0], inside)}; },
        {.outputs = &hooks});
    output = squares[0].storage().getWeakStorageImpl();
    y = square(squares[0], after) + square(squares[0].view({2, 2}), after).view({4});
  }
  EXPECT_TRUE(output->expired());
  y.sum().backward();
  EXPECT_TRUE(x.grad().equal(8 * x.detach().pow(3)));
  EXPECT_EQ(inside.computed, 2) << "two readers share one computation";
}

TEST(OffloadedActivations, ComeBackForBackward) {
  const auto file = std::make_shared<OffloadFile>(
      OffloadFile::Options{.folder = std::filesystem::temp_directory_path()});
  const auto store = make_file_offload_store(file);
  Calls calls;
  const at::Tensor x = numbers(100'000);
  at::Tensor y = x * 1;
  OffloadPass pass(*store, {.min_elements = 10});
  for (int layer = 0; layer < 3; ++layer) {
    OffloadedLayer hooks(pass);
    const SavedTensorHooksScope scope(&hooks);
    y = square(y * 1e-5, calls);
  }
  EXPECT_EQ(store->statistics().stored_bytes, 3 * 100'000 * 8);
  y.sum().backward();
  EXPECT_EQ(store->statistics().stored_bytes, 0);
  const at::Tensor again = x.detach().clone().set_requires_grad(true);
  at::Tensor z = again * 1;
  for (int layer = 0; layer < 3; ++layer) z = square(z * 1e-5, calls);
  z.sum().backward();
  EXPECT_TRUE(x.grad().equal(again.grad()));
}

TEST(OffloadedActivations, SmallAndSharedTensorsStay) {
  const auto file = std::make_shared<OffloadFile>(
      OffloadFile::Options{.folder = std::filesystem::temp_directory_path()});
  const auto store = make_file_offload_store(file);
  Calls calls;
  const at::Tensor small = numbers(9), shared = numbers(1000);
  OffloadPass pass(*store, {.min_elements = 10, .shared = {shared}});
  OffloadedLayer hooks(pass);
  {
    const SavedTensorHooksScope scope(&hooks);
    const at::Tensor y = square(small, calls).sum() + square(shared, calls).sum();
    EXPECT_EQ(store->statistics().stored_bytes, 0);
    y.backward();
  }
  EXPECT_TRUE(shared.grad().equal(2 * shared.detach()));
}

}  // namespace
}  // namespace megatron
