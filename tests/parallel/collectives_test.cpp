// Compares every collective, for every type and world size, with plain tensor arithmetic.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <tuple>

#include "support/rank_numbers.h"

namespace megatron {
namespace {

/// Returns the input of `rank`: values that are exact in bfloat16 but whose sums are not.
at::Tensor input_of(std::int64_t rank, std::int64_t elements, at::ScalarType type) {
  return at::arange(elements, at::kLong)
      .mul(37)
      .add(rank * 101)
      .remainder(type == at::kByte ? 23 : 127)
      .to(type)
      .contiguous();
}

/// Returns Σ over the ranks in the order and precision that comm.h promises.
at::Tensor expected_sum(std::int64_t world, std::int64_t elements, at::ScalarType type,
                        bool average = false) {
  const bool short_float = type == at::kBFloat16 || type == at::kHalf;
  at::Tensor total = input_of(0, elements, type).to(short_float ? at::kFloat : type);
  for (std::int64_t rank = 1; rank < world; ++rank)
    total = total + input_of(rank, elements, type).to(total.scalar_type());
  if (average) total = total / static_cast<double>(world);
  return total.to(type);
}

class Collectives
    : public testing::TestWithParam<std::tuple<std::int64_t, at::ScalarType, std::int64_t>> {
 protected:
  std::int64_t world() const { return std::get<0>(GetParam()); }
  at::ScalarType type() const { return std::get<1>(GetParam()); }
  /// Elements per rank.
  std::int64_t elements() const { return std::get<2>(GetParam()); }
  void run(const std::function<void(Comm&)>& body) const {
    run_rank_threads(
        world(),
        [&](Communicators& world_comms) { body(*world_comms.group(first_ranks(world()), "dp")); },
        {.timeout = std::chrono::seconds(60)});
  }
};

TEST_P(Collectives, AllReduce) {
  const at::Tensor sum = expected_sum(world(), elements(), type());
  at::Tensor largest = input_of(0, elements(), type());
  for (std::int64_t rank = 1; rank < world(); ++rank)
    largest = at::maximum(largest, input_of(rank, elements(), type()));
  run([&](Comm& comm) {
    at::Tensor a = input_of(comm.rank(), elements(), type()), b = a.clone(), c = a.clone();
    comm.all_reduce(a, "sum");
    comm.all_reduce(b, "max", ReduceOp::max);
    EXPECT_TRUE(at::equal(a, sum));
    EXPECT_TRUE(at::equal(b, largest));
    if (!at::isFloatingType(type())) return;
    comm.all_reduce(c, "average", ReduceOp::average);
    EXPECT_TRUE(at::equal(c, expected_sum(world(), elements(), type(), true)));
  });
}

TEST_P(Collectives, AllGatherAlsoInPlace) {
  std::vector<at::Tensor> inputs;
  for (std::int64_t rank = 0; rank < world(); ++rank)
    inputs.push_back(input_of(rank, elements(), type()));
  const at::Tensor expected = at::cat(inputs);
  run([&](Comm& comm) {
    at::Tensor out = at::zeros_like(expected);
    comm.all_gather(out, inputs[static_cast<std::size_t>(comm.rank())], "apart");
    EXPECT_TRUE(at::equal(out, expected));
    out.zero_();
    const at::Tensor own = out.narrow(0, comm.rank() * elements(), elements());
    own.copy_(inputs[static_cast<std::size_t>(comm.rank())]);
    comm.all_gather(out, own, "in place");
    EXPECT_TRUE(at::equal(out, expected));
  });
}

TEST_P(Collectives, ReduceScatterAlsoInPlace) {
  const at::Tensor sum = expected_sum(world(), elements() * world(), type());
  run([&](Comm& comm) {
    const at::Tensor expected = sum.narrow(0, comm.rank() * elements(), elements());
    at::Tensor in = input_of(comm.rank(), elements() * world(), type()),
               out = at::zeros_like(expected);
    comm.reduce_scatter(out, in, "apart");
    EXPECT_TRUE(at::equal(out, expected));
    const at::Tensor own = in.narrow(0, comm.rank() * elements(), elements());
    comm.reduce_scatter(own, in, "in place");
    EXPECT_TRUE(at::equal(own, expected));
  });
}

TEST_P(Collectives, AllToAll) {
  run([&](Comm& comm) {
    at::Tensor out = at::empty({elements() * world()}, type());
    comm.all_to_all(out, input_of(comm.rank(), elements() * world(), type()), "tokens");
    for (std::int64_t rank = 0; rank < world(); ++rank) {
      const at::Tensor sent = input_of(rank, elements() * world(), type())
                                  .narrow(0, comm.rank() * elements(), elements());
      EXPECT_TRUE(at::equal(out.narrow(0, rank * elements(), elements()), sent));
    }
  });
}

/// Rows that rank `from` has for rank `to`: any number from none to the test's size.
std::int64_t rows_for(std::int64_t from, std::int64_t to, std::int64_t most) {
  return (from * 7 + to * 5) % 4 * most / 3;
}

/// Returns rows [first, first + count) of `rank`, three elements wide.
at::Tensor rows_of(std::int64_t rank, std::int64_t count, at::ScalarType type) {
  return input_of(rank, 3 * count, type).view({count, 3});
}

TEST_P(Collectives, UnevenAllToAll) {
  const auto rows_from = [&](std::int64_t from) {
    std::vector<std::int64_t> rows;
    for (std::int64_t to = 0; to < world(); ++to) rows.push_back(rows_for(from, to, elements()));
    return rows;
  };
  const auto sent_by = [&](std::int64_t from) {
    std::int64_t count = 0;
    for (const std::int64_t rows : rows_from(from)) count += rows;
    return rows_of(from, count, type());
  };
  run([&](Comm& comm) {
    RowCounts rows{.out = {}, .in = rows_from(comm.rank())};
    std::vector<at::Tensor> expected;
    for (std::int64_t from = 0; from < world(); ++from) {
      std::int64_t begin = 0;
      for (std::int64_t to = 0; to < comm.rank(); ++to) begin += rows_for(from, to, elements());
      rows.out.push_back(rows_for(from, comm.rank(), elements()));
      expected.push_back(sent_by(from).narrow(0, begin, rows.out.back()));
    }
    const at::Tensor whole = at::cat(expected);
    at::Tensor out = at::empty_like(whole);
    comm.all_to_all(out, sent_by(comm.rank()), "tokens", rows);
    EXPECT_TRUE(at::equal(out, whole));
  });
}

TEST_P(Collectives, UnevenAllGather) {
  std::vector<std::int64_t> rows;
  std::vector<at::Tensor> parts;
  for (std::int64_t rank = 0; rank < world(); ++rank) {
    rows.push_back(rows_for(rank, 1, elements()));
    parts.push_back(rows_of(rank, rows.back(), type()));
  }
  const at::Tensor whole = at::cat(parts);
  run([&](Comm& comm) {
    at::Tensor out = at::empty_like(whole);
    comm.all_gather(out, parts[static_cast<std::size_t>(comm.rank())], "tokens", rows);
    EXPECT_TRUE(at::equal(out, whole));
  });
}

TEST_P(Collectives, Broadcast) {
  run([&](Comm& comm) {
    for (std::int64_t root = 0; root < world(); ++root) {
      at::Tensor tensor = input_of(comm.rank(), elements(), type());
      comm.broadcast(tensor, root, "weights");
      EXPECT_TRUE(at::equal(tensor, input_of(root, elements(), type())));
    }
  });
}

TEST_P(Collectives, MessagesRoundTheRing) {
  run([&](Comm& comm) {
    const std::int64_t next = (comm.rank() + 1) % world(),
                       previous = (comm.rank() + world() - 1) % world();
    at::Tensor first = at::empty({elements()}, type()), second = at::empty({elements()}, type());
    const at::Tensor mine = input_of(comm.rank(), elements(), type()),
                     later = input_of(comm.rank() + 7, elements(), type());
    const PendingWork one = comm.start_send(mine, next, "first"),
                      two = comm.start_send(later, next, "second");
    comm.recv(first, previous, "first");
    comm.recv(second, previous, "second");
    EXPECT_TRUE(at::equal(first, input_of(previous, elements(), type())));
    EXPECT_TRUE(at::equal(second, input_of(previous + 7, elements(), type())));
    two->wait();
    one->wait();
  });
}

std::string case_name(const testing::TestParamInfo<Collectives::ParamType>& info) {
  const auto [world, type, elements] = info.param;
  return std::to_string(world) + "_ranks_" + c10::toString(type) + "_" + std::to_string(elements);
}

constexpr auto kTypes = {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf,
                         at::kLong,   at::kInt,   at::kByte};

INSTANTIATE_TEST_SUITE_P(Small, Collectives,
                         testing::Combine(testing::Values(2, 3, 4, 8), testing::ValuesIn(kTypes),
                                          testing::Values(0, 1, 1021)),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Large, Collectives,
                         testing::Combine(testing::Values(2, 3, 8),
                                          testing::Values(at::kFloat, at::kBFloat16),
                                          testing::Values(400'003)),
                         case_name);

TEST(SumsOf16Bits, AreFormedInFloat32AndRoundedOnce) {
  run_rank_threads(4, [](Communicators& world) {
    const auto comm = world.group(first_ranks(4), "dp");
    // 256 + 1 + 1 + 1 is 256 when every hop rounds to bfloat16, 260 when only the sum 259 does.
    at::Tensor tensor = at::full({16}, world.rank() == 0 ? 256.0 : 1.0, at::kBFloat16);
    comm->all_reduce(tensor, "gradients");
    EXPECT_EQ(tensor[0].item<double>(), 260.0);
  });
}

}  // namespace
}  // namespace megatron
