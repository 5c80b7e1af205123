// Pearson's χ² test of draws against a distribution.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace megatron {

/// Expects that `counts` are those of draws from `probabilities`: what is impossible is never
/// drawn, and χ² is below the quantile that one of a million tests exceeds.
inline void expect_distribution(const std::vector<std::int64_t>& counts,
                                const std::vector<double>& probabilities) {
  // scipy.stats.chi2.isf(1e-6, d) for d = 1, 2, …
  constexpr std::array kQuantiles{23.93, 27.63, 30.66, 33.38, 35.89, 38.26, 40.52, 42.70,
                                  44.81, 46.86, 48.87, 50.83, 52.75, 54.64, 56.49, 58.32};
  ASSERT_EQ(counts.size(), probabilities.size());
  std::int64_t draws = 0;
  for (const std::int64_t count : counts) draws += count;
  double sum = 0;
  std::size_t degrees = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * static_cast<double>(draws);
    if (expected == 0) {
      EXPECT_EQ(counts[i], 0) << i;
      continue;
    }
    const double difference = static_cast<double>(counts[i]) - expected;
    sum += difference * difference / expected;
    ++degrees;
  }
  ASSERT_GE(degrees, 2u);
  ASSERT_LE(degrees - 1, kQuantiles.size());
  EXPECT_LT(sum, kQuantiles[degrees - 2]);
}

}  // namespace megatron
