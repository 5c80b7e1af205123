// Every mapping on three ranks: its forward result and its conjugate backward.
#include "megatron/ops/tensor_parallel_mappings.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include <chrono>

#include "megatron/ops/differentiable.h"
#include "megatron/parallel/rank_threads.h"

namespace megatron {
namespace {

constexpr std::int64_t kRanks = 3, kLength = 6, kPart = kLength / kRanks;

/// Returns the input of rank `rank`: whole [6, 2], or a slice of the sequence.
at::Tensor brought(std::int64_t rank, std::int64_t length, double phase) {
  return at::sin(at::arange(length * 2, at::kDouble).view({length, 2}) * 1.3 + phase +
                 static_cast<double>(rank));
}

at::Tensor sum_of(std::int64_t length, double phase) {
  return brought(0, length, phase) + brought(1, length, phase) + brought(2, length, phase);
}

at::Tensor all_of(std::int64_t length, double phase, std::int64_t dim) {
  return at::cat({brought(0, length, phase), brought(1, length, phase), brought(2, length, phase)},
                 dim);
}

at::Tensor slice_of(const at::Tensor& x, std::int64_t rank) {
  return x.narrow(0, rank * kPart, kPart);
}

using RegionFunction = at::Tensor (*)(const at::Tensor&, const Axis&, const char*);
using Expected = std::function<at::Tensor(std::int64_t rank)>;

struct Case {
  const char* name;
  RegionFunction region;
  std::int64_t length_in, length_out;
  Expected forward, backward;  ///< y of the input with phase 0, dx of the dy with phase 5
};

const Case kCases[] = {
    {"copy_to_tensor_parallel_region", copy_to_tensor_parallel_region, kLength, kLength,
     [](std::int64_t rank) { return brought(rank, kLength, 0); },
     [](std::int64_t) { return sum_of(kLength, 5); }},
    {"reduce_from_tensor_parallel_region", reduce_from_tensor_parallel_region, kLength, kLength,
     [](std::int64_t) { return sum_of(kLength, 0); },
     [](std::int64_t rank) { return brought(rank, kLength, 5); }},
    {"gather_from_sequence_parallel_region", gather_from_sequence_parallel_region, kPart, kLength,
     [](std::int64_t) { return all_of(kPart, 0, 0); },
     [](std::int64_t rank) { return slice_of(sum_of(kLength, 5), rank); }},
    {"reduce_scatter_to_sequence_parallel_region", reduce_scatter_to_sequence_parallel_region,
     kLength, kPart, [](std::int64_t rank) { return slice_of(sum_of(kLength, 0), rank); },
     [](std::int64_t) { return all_of(kPart, 5, 0); }},
    {"scatter_replicated_sequence", scatter_replicated_sequence, kLength, kPart,
     [](std::int64_t rank) { return slice_of(brought(rank, kLength, 0), rank); },
     [](std::int64_t) { return all_of(kPart, 5, 0); }},
};

class Regions : public testing::TestWithParam<Case> {};

TEST_P(Regions, AreConjugate) {
  const Case& expected = GetParam();
  run_rank_threads(
      kRanks,
      [&](Communicators& communicators) {
        const std::int64_t rank = communicators.rank();
        const Axis axis{.name = "tp",
                        .rank = rank,
                        .size = kRanks,
                        .comm = communicators.group({0, 1, 2}, "tp")};
        const at::Tensor x = brought(rank, expected.length_in, 0).set_requires_grad(true);
        const at::Tensor y = expected.region(x, axis, "region");
        EXPECT_TRUE(at::allclose(y, expected.forward(rank), 0, 1e-15)) << "rank " << rank;
        y.backward(brought(rank, expected.length_out, 5));
        EXPECT_TRUE(at::allclose(x.grad(), expected.backward(rank), 0, 1e-15)) << "rank " << rank;
      },
      {.timeout = std::chrono::milliseconds(20'000)});
}

TEST_P(Regions, AreTheIdentityOnOneRank) {
  const at::Tensor x = brought(0, kLength, 0);
  EXPECT_TRUE(GetParam().region(x, Axis{}, "region").is_same(x));
}

INSTANTIATE_TEST_SUITE_P(Pairs, Regions, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(Regions, FeaturesAreGatheredInRankOrder) {
  run_rank_threads(kRanks,
                   [&](Communicators& communicators) {
                     const std::int64_t rank = communicators.rank();
                     const Axis axis{.name = "tp",
                                     .rank = rank,
                                     .size = kRanks,
                                     .comm = communicators.group({0, 1, 2}, "tp")};
                     const at::Tensor x = brought(rank, kLength, 0).set_requires_grad(true);
                     const at::Tensor y = gather_from_tensor_parallel_region(x, axis, "region");
                     EXPECT_TRUE(at::equal(y, all_of(kLength, 0, 1)));
                     const at::Tensor dy = all_of(kLength, 5, 1);
                     y.backward(dy);
                     EXPECT_TRUE(at::equal(x.grad(), dy.narrow(1, rank * 2, 2)));
                   },
                   {.timeout = std::chrono::milliseconds(20'000)});
}

// Seven positions over three ranks: 3, 2 and 2.
TEST(ReplicatedSequence, OfAnyLengthIsScatteredAndGathered) {
  constexpr std::int64_t kLengths[] = {3, 2, 2}, kFirst[] = {0, 3, 5};
  run_rank_threads(kRanks, [&](Communicators& communicators) {
    const Axis axis{.name = "tp",
                    .rank = communicators.rank(),
                    .size = kRanks,
                    .comm = communicators.group({0, 1, 2}, "tp")};
    const std::int64_t first = kFirst[axis.rank], length = kLengths[axis.rank];
    EXPECT_EQ(sequence_slices(7, axis), (std::vector<std::int64_t>{3, 2, 2}));
    const at::Tensor x = brought(0, 7, 0).requires_grad_(), all_dy = brought(0, 7, 5);
    const at::Tensor own = scatter_replicated_sequence(x, axis, "test");
    EXPECT_TRUE(own.equal(x.narrow(0, first, length)));
    const at::Tensor dx = gradient_of(own, x, all_dy.narrow(0, first, length));
    EXPECT_TRUE(dx.equal(all_dy));

    const at::Tensor part = x.detach().narrow(0, first, length).clone().requires_grad_();
    const at::Tensor whole = gather_replicated_sequence(part, 7, axis, "test");
    EXPECT_TRUE(whole.equal(x));
    EXPECT_TRUE(gradient_of(whole, part, all_dy).equal(all_dy.narrow(0, first, length)));
  });
}

}  // namespace
}  // namespace megatron
