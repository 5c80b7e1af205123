// Compares the random kernels with Box–Muller in the C library, bit for bit.
#include "kernels/cpu/random_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "megatron/base/philox.h"

namespace megatron::kernels {
namespace {

double uniform(std::uint32_t lane) { return (lane + 0.5) * 0x1p-32; }

/// Computes Box–Muller with the C library's functions.
double normal(double std, std::uint64_t key, std::int64_t element) {
  const auto lanes = philox_block(key, static_cast<std::uint64_t>(element / 4), 0);
  const std::size_t pair = static_cast<std::size_t>(element % 4) / 2 * 2;
  const double radius = std * std::sqrt(-2 * std::log(uniform(lanes[pair])));
  const double angle = 2 * std::numbers::pi * uniform(lanes[pair + 1]);
  return radius * (element % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

std::int64_t num_asked = 0;
double counted_normal(double std, std::uint64_t key, std::int64_t element) {
  ++num_asked;
  return normal(std, key, element);
}

void expect_exact(double std, std::int64_t first, std::int64_t count) {
  const std::uint64_t key = philox_key(1234, "layer.weight");
  std::vector<float> out(static_cast<std::size_t>(count) + 1, 7);
  random_kernels().normals(std, key, first, count, out.data(), counted_normal);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto expected = static_cast<float>(normal(std, key, first + i));
    ASSERT_EQ(std::memcmp(&expected, &out[static_cast<std::size_t>(i)], sizeof expected), 0)
        << "element " << first + i << " with deviation " << std;
  }
  EXPECT_EQ(out.back(), 7);
}

TEST(Draws, NormalsHaveTheBitsOfTheCLibrary) {
  num_asked = 0;
  expect_exact(0.02, 0, 4'000'000);
  EXPECT_LT(num_asked, 100) << "nearly all come from the vectorised functions";
  expect_exact(1, (std::int64_t{1} << 33) + 5, 100'000);
}

TEST(Draws, NormalsOfAnyStretch) {
  for (const std::int64_t first : {0, 1, 3, 63, 64, 65, 200}) {
    for (const std::int64_t count : {0, 1, 2, 61, 64, 66, 300}) expect_exact(0.5, first, count);
  }
}

TEST(Draws, NormalsTooSmallForTheVectorPath) {
  for (const double std : {0.0, 1e-38, 1e-45, 1e-60}) expect_exact(std, 0, 1000);
}

}  // namespace
}  // namespace megatron::kernels
