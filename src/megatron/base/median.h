// The median of measurements.
#pragma once

#include <algorithm>
#include <vector>

namespace megatron {

/// Returns the median of at least one number; of an even count the upper one.
inline double median(std::vector<double> numbers) {
  const auto middle = numbers.begin() + std::ssize(numbers) / 2;
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

}  // namespace megatron
