// Consecutive collectives of one group through shared slots, at sizes around chunk boundaries and
// in place. The results must be bit-identical to sums in rank order, between threads and processes.
// MEGATRON_TEST_SEED repeats a failure.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <emmintrin.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "megatron/base/cpu_instructions.h"
#include "megatron/parallel/shared_memory/byte_copy.h"
#include "megatron/parallel/shared_memory/cache_line_probe.h"
#include "megatron/parallel/shared_memory/shared_memory_area.h"
#include "parallel/rank_processes.h"
#include "support/rank_numbers.h"

namespace megatron {
namespace {

using Random = std::mt19937_64;

std::int64_t draw(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

/// Returns float32 values whose sums depend on their order.
at::Tensor values_of(std::int64_t rank, std::int64_t elements, std::int64_t number) {
  return at::arange(elements, at::kLong)
      .mul(number + 1)
      .add(rank * 7)
      .remainder(61)
      .to(at::kFloat)
      .mul(0.1);
}

at::Tensor sum_of(std::int64_t world, std::int64_t elements, std::int64_t number) {
  at::Tensor total = values_of(0, elements, number);
  for (std::int64_t rank = 1; rank < world; ++rank)
    total = total + values_of(rank, elements, number);
  return total;
}

/// Draws the size of one rank's tensor: zero, one, a few, or within one element of up to five whole
/// chunks.
std::int64_t draw_elements(Random& random, std::int64_t world) {
  const std::int64_t slot = kSlotBytes / 4;
  const std::int64_t kind = draw(random, 0, 5), border = draw(random, -1, 1);
  if (kind == 0) return draw(random, 0, 1);
  if (kind == 1) return draw(random, 2, 3000);
  const std::int64_t unit = kind <= 3 ? slot / world : slot;
  return draw(random, 1, kind <= 3 ? 5 : 2) * unit + border;
}

void check(Comm& comm, std::int64_t kind, std::int64_t n, std::int64_t number, bool in_place) {
  const std::int64_t world = comm.size(), own = comm.rank();
  at::Tensor out, expected;
  if (kind == 0) {
    out = values_of(own, n, number);
    expected = sum_of(world, n, number);
    comm.all_reduce(out, "a");
  } else if (kind == 1) {
    std::vector<at::Tensor> parts;
    for (std::int64_t rank = 0; rank < world; ++rank) parts.push_back(values_of(rank, n, number));
    expected = at::cat(parts);
    out = at::zeros({n * world});
    at::Tensor in = values_of(own, n, number);
    if (in_place) in = out.narrow(0, own * n, n).copy_(in);
    comm.all_gather(out, in, "b");
  } else if (kind == 2) {
    at::Tensor in = values_of(own, n * world, number);
    expected = sum_of(world, n * world, number).narrow(0, own * n, n);
    out = in_place ? in.narrow(0, own * n, n) : at::zeros({n});
    comm.reduce_scatter(out, in, "c");
  } else if (kind == 3) {
    std::vector<at::Tensor> parts;
    for (std::int64_t rank = 0; rank < world; ++rank)
      parts.push_back(values_of(rank, n * world, number).narrow(0, own * n, n));
    expected = at::cat(parts);
    out = at::zeros({n * world});
    comm.all_to_all(out, values_of(own, n * world, number), "d");
  } else if (kind == 4) {
    out = values_of(own, n, number);
    expected = values_of(number % world, n, number);
    comm.broadcast(out, number % world, "e");
  } else {
    comm.barrier("f");
    return;
  }
  ASSERT_TRUE(at::equal(out, expected)) << "kind " << kind << " of " << n << " elements, operation "
                                        << number << (in_place ? " in place" : "");
}

void follow(Communicators& world, std::uint64_t seed, std::int64_t operations) {
  at::set_num_threads(1);
  Random random(seed);
  const auto comm = world.group(first_ranks(world.world_size()), "random");
  for (std::int64_t number = 0; number < operations && !testing::Test::HasFailure(); ++number) {
    const std::int64_t kind = draw(random, 0, 5), elements = draw_elements(random, comm->size());
    check(*comm, kind, elements, number, draw(random, 0, 1) == 1);
  }
}

std::uint64_t seed_of_test() {
  const char* wanted = std::getenv("MEGATRON_TEST_SEED");
  return wanted != nullptr ? std::stoull(wanted) : std::random_device()();
}

TEST(ChunkBoundaries, BetweenThreadsEqualArithmetic) {
  const std::uint64_t seed = seed_of_test();
  for (const std::int64_t world : {2, 3, 4, 5}) {
    SCOPED_TRACE("MEGATRON_TEST_SEED=" + std::to_string(seed) + " ranks " + std::to_string(world));
    run_rank_threads(world, [&](Communicators& communicators) { follow(communicators, seed, 24); },
                     {.timeout = std::chrono::seconds(60)});
    ASSERT_FALSE(testing::Test::HasFailure()) << "MEGATRON_TEST_SEED=" << seed;
  }
}

const RankBodyOf kFollow{"chunk boundaries", [](Communicators& world) {
                           follow(world, std::stoull(child_variable("MEGATRON_TEST_SEED")), 24);
                         }};

TEST(ChunkBoundaries, BetweenProcessesEqualArithmetic) {
  const std::string seed = std::to_string(seed_of_test());
  ::setenv("MEGATRON_TEST_SEED", seed.c_str(), 1);
  for (const std::size_t ranks : {2U, 3U}) {
    RankProcesses processes({.body = "chunk boundaries",
                             .hosts = std::vector<std::string>(ranks, "a"),
                             .timeout_ms = 60'000});
    for (const ProcessEnd& end : processes.ends())
      EXPECT_EQ(end.code, 0) << end.text << " signal " << end.signal
                             << " MEGATRON_TEST_SEED=" << seed;
  }
  ::unsetenv("MEGATRON_TEST_SEED");
}

TEST(ChunkBoundaries, LargeResultsThatPassTheCachesAreWhole) {
  constexpr std::int64_t kElements = (16 << 20) / 4 + 3;
  run_rank_threads(
      2,
      [](Communicators& world) {
        const auto comm = world.group(first_ranks(2), "dp");
        for (const std::int64_t kind : {0, 1, 3, 4}) check(*comm, kind, kElements, kind, true);
        // The tensor does not start at a cache line.
        const at::Tensor tensor = at::cat(
            {at::full({1}, 5.0), values_of(comm->rank(), kElements, 1), at::full({1}, 6.0)});
        comm->all_reduce(tensor.narrow(0, 1, kElements), "unaligned");
        EXPECT_TRUE(at::equal(tensor.narrow(0, 1, kElements), sum_of(2, kElements, 1)));
        EXPECT_EQ(tensor[0].item<double>(), 5.0);
        EXPECT_EQ(tensor[kElements + 1].item<double>(), 6.0);
      },
      {.timeout = std::chrono::seconds(60)});
}

TEST(ByteCopy, MovesExactlyTheBytesFromAndToAnyAddress) {
  std::vector<std::byte> from(1024), to(1024);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (const CopyMode mode : {CopyMode::cached, CopyMode::non_temporal}) {
    for (std::size_t bytes = 0; bytes < 330; bytes += bytes < 130 ? 1 : 31) {
      for (std::size_t offset = 0; offset < 70; offset += 3) {
        std::fill(to.begin(), to.end(), std::byte{0});
        copy_bytes(to.data() + offset, from.data() + 2 * offset, static_cast<std::int64_t>(bytes),
                   mode);
        non_temporal_fence();
        std::vector<std::byte> expected(to.size(), std::byte{0});
        std::copy_n(from.begin() + 2 * static_cast<std::ptrdiff_t>(offset), bytes,
                    expected.begin() + static_cast<std::ptrdiff_t>(offset));
        ASSERT_EQ(to, expected) << bytes << " bytes to offset " << offset;
      }
    }
  }
}

TEST(CacheLineProbe, LinesOfACacheAreNearAndLinesOfMemoryAreFar) {
  const auto probe = std::make_unique<CacheLineProbe>();
  int near = 0, far = 0;
  for (std::uint64_t turn = 0; turn < 200; ++turn) {  // other load may disturb some measurements
    probe->touch(turn);
    near += probe->is_far(turn) ? 0 : 1;
    probe->touch(turn);
    for (std::size_t byte = 0; byte < sizeof(CacheLineProbe); byte += 64)
      _mm_clflush(reinterpret_cast<const std::byte*>(probe.get()) + byte);
    _mm_mfence();
    far += probe->is_far(turn) ? 1 : 0;
  }
  EXPECT_GT(near, 150);
  EXPECT_GT(far, 50);
}

}  // namespace
}  // namespace megatron
