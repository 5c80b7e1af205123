// Compares the 16-bit types and the random numbers of the CUDA bodies, which also compile for the
// host, with those of the language and of base/philox.h.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/half.h"
#include "kernels/cuda/philox.h"
#include "kernels/cuda/portable.h"
#include "megatron/base/philox.h"

namespace megatron::kernels::cuda {
namespace {

TEST(CudaPhilox, IsThatOfTheCpu) {
  std::uint64_t state = 1;
  const auto next = [&state] {
    return state = state * 6364136223846793005u + 1442695040888963407u;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t key = next(), block = next() >> (i % 64), ordinal = next() >> (i % 61);
    const auto expected = megatron::philox_block(key, block, ordinal);
    const PhiloxWords got = philox_block(key, block, ordinal);
    for (int lane = 0; lane < 4; ++lane)
      ASSERT_EQ(got.lane[lane], expected[lane]) << block << " at " << ordinal;
  }
}

TEST(CudaHalf, EveryValueIsReadAndWrittenExactly) {
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const auto expected = static_cast<float>(std::bit_cast<NativeHalf>(half));
    const float got = from_half(Half{half});
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(got)) << bits;
      ASSERT_TRUE(std::isnan(from_half(to_half(got)))) << bits;
      continue;
    }
    ASSERT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected)) << bits;
    ASSERT_EQ(to_half(got).bits, half) << bits;
  }
}

/// Every midpoint between neighbours, and the floats on both of its sides, round as the compiler's
/// NativeHalf does.
TEST(CudaHalf, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7C00u; ++bits) {
    const float low = from_half(Half{static_cast<std::uint16_t>(bits)});
    const float high =
        bits == 0x7BFFu ? 65536.0f : from_half(Half{static_cast<std::uint16_t>(bits + 1)});
    const float middle = (low + high) / 2;
    for (const float value :
         {middle, std::nextafter(middle, low), std::nextafter(middle, high), -middle}) {
      ASSERT_EQ(to_half(value).bits, std::bit_cast<std::uint16_t>(static_cast<NativeHalf>(value)))
          << value;
    }
  }
  for (const float value : {1e10f, -1e10f, std::numeric_limits<float>::infinity(), 1e-30f,
                            std::numeric_limits<float>::denorm_min()}) {
    ASSERT_EQ(to_half(value).bits, std::bit_cast<std::uint16_t>(static_cast<NativeHalf>(value)))
        << value;
  }
}

/// bfloat16 is a float whose lower half is zero. The nearer neighbour wins, and the even one on a
/// tie.
TEST(CudaBf16, RoundsToNearestEven) {
  for (std::uint32_t upper = 0; upper < 0x7F80u; ++upper) {
    const auto wide = [](std::uint32_t bits) { return std::bit_cast<float>(bits << 16); };
    ASSERT_EQ(to_bf16(wide(upper)).bits, upper);
    const std::uint32_t even = upper % 2 == 0 ? upper : upper + 1, base = upper << 16;
    ASSERT_EQ(to_bf16(std::bit_cast<float>(base | 0x8000u)).bits, even);
    ASSERT_EQ(to_bf16(std::bit_cast<float>(base | 0x7FFFu)).bits, upper);
    ASSERT_EQ(to_bf16(std::bit_cast<float>(base | 0x8001u)).bits, upper + 1);
    ASSERT_EQ(to_bf16(-std::bit_cast<float>(base | 0x8001u)).bits, 0x8000u | (upper + 1));
    ASSERT_EQ(from_bf16(Bf16{static_cast<std::uint16_t>(upper)}), wide(upper));
  }
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_TRUE(std::isinf(from_bf16(to_bf16(std::numeric_limits<float>::max()))));
}

}  // namespace
}  // namespace megatron::kernels::cuda
