// Sums over a parameter have the same bits however ranks share its blocks.
#include "kernels/block_sums.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernels/cpu/gradient_norm.h"
#include "kernels/cuda/gradient_norm_body.h"
#include "storage.h"

namespace megatron::kernels {
namespace {

GradientChunk chunk_of(const Storage& grad, std::int64_t begin, std::int64_t count) {
  GradientChunk chunk{};
  chunk.grad =
      static_cast<const unsigned char*>(grad.data()) + begin * (grad.type() == Type::f32 ? 4 : 2);
  chunk.count = count;
  return chunk;
}

/// The subtrees of the chunk's blocks [0, cut) and [cut, 256), from left to right. Each part stops
/// where the parameter ends.
double sum_cut_at(const Storage& grad, std::int64_t cut) {
  const auto size = static_cast<std::int64_t>(grad.size());
  std::vector<SumSlot> slots;
  std::vector<double> sums;
  for (std::int64_t block = 0; block * kStateBlock < size;) {
    const std::int64_t last = block < cut ? cut : 256;
    std::int32_t level = 0;
    while (level < kChunkLevel && block % (std::int64_t{2} << level) == 0 &&
           block + (std::int64_t{2} << level) <= last)
      ++level;
    const std::int64_t begin = block * kStateBlock,
                       end = std::min(begin + (kStateBlock << level), size);
    slots.push_back({level, end == size});
    sums.push_back(sum_of_squares(chunk_of(grad, begin, end - begin), grad.type()));
    block += std::int64_t{1} << level;
  }
  return sum_slots(slots.data(), sums.data(), 0, static_cast<std::int64_t>(slots.size()));
}

TEST(BlockSums, DoNotDependOnTheCut) {
  for (const Type type : {Type::f32, Type::bf16}) {
    for (const std::size_t size : {std::size_t{1} << 16, std::size_t{50'001}, std::size_t{700}}) {
      const Storage grad = numbers(type, size, 3);
      const double whole = sum_of_squares(chunk_of(grad, 0, static_cast<std::int64_t>(size)), type);
      for (std::int64_t cut = 1; cut < 256; ++cut)
        ASSERT_EQ(sum_cut_at(grad, cut), whole)
            << "cut at block " << cut << " of " << size << " elements";
    }
  }
}

TEST(BlockSums, SkippedElementsCountAsZero) {
  Storage grad = numbers(Type::f32, 5000, 4);
  GradientChunk chunk = chunk_of(grad, 0, 5000);
  chunk.skip_begin = 700;
  chunk.skip_end = 1500;
  const double skipped = sum_of_squares(chunk, Type::f32);
  EXPECT_EQ(gradient_norm_kernels().count_zeros(chunk, Type::f32), 0);
  for (const std::size_t i : {5UL, 699UL, 700UL, 1499UL, 1500UL, 4999UL}) grad.set(i, 0);
  EXPECT_EQ(gradient_norm_kernels().count_zeros(chunk, Type::f32), 4);
  grad = numbers(Type::f32, 5000, 4);
  for (std::size_t i = 700; i < 1500; ++i) grad.set(i, 0);
  EXPECT_EQ(skipped, sum_of_squares(chunk_of(grad, 0, 5000), Type::f32));
  EXPECT_EQ(gradient_norm_kernels().count_zeros(chunk_of(grad, 0, 5000), Type::f32), 800);
}

TEST(BlockSums, HaveTheSameBitsInTheBodyOfTheCudaKernel) {
  for (const Type type : {Type::f32, Type::bf16}) {
    for (const std::int64_t size : {1 << 16, 50'001, 77}) {
      const Storage grad = numbers(type, static_cast<std::size_t>(size), 5);
      for (const std::int64_t skip_end : {30, 60}) {
        GradientChunk chunk = chunk_of(grad, 0, size);
        chunk.skip_begin = 30;
        chunk.skip_end = skip_end;
        double sum = 0;
        StatisticsPlan plan{};
        plan.chunks = &chunk;
        plan.grad = type;
        plan.sums = &sum;
        cuda::square_chunk(plan, 0, cuda::SerialTeam<cuda::kChunkTeam>{});
        EXPECT_EQ(sum, sum_of_squares(chunk, type)) << size << ", up to " << skip_end << " skipped";
      }
    }
  }
}

}  // namespace
}  // namespace megatron::kernels
