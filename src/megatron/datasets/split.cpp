#include "megatron/datasets/split.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "megatron/base/error.h"
#include "megatron/config/resolve.h"

namespace megatron {
namespace {

/// Returns numpy.sum of float64: a plain loop below 8 values, eight accumulators up to 128,
/// recursive halves beyond.
double pairwise_sum(std::span<const double> values) {
  const std::size_t count = values.size();
  if (count < 8) {
    double total = 0;
    for (const double value : values) total += value;
    return total;
  }
  if (count <= 128) {
    std::array<double, 8> lanes;
    std::copy_n(values.begin(), 8, lanes.begin());
    std::size_t i = 8;
    for (; i + 8 <= count; i += 8) {
      for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += values[i + lane];
    }
    double total = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
                   ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
    for (; i < count; ++i) total += values[i];
    return total;
  }
  const std::size_t half = count / 2 - (count / 2) % 8;
  return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
}

}  // namespace

std::string_view split_name(Split split) {
  constexpr std::array<std::string_view, 3> kNames = {"train", "valid", "test"};
  return kNames[static_cast<std::size_t>(split)];
}

std::vector<double> normalize(std::vector<double> weights) {
  const double total = pairwise_sum(weights);
  for (double& weight : weights) weight /= total;
  return weights;
}

SplitMatrix parse_split(const std::string& text) {
  const auto shares = split_weights(text);
  if (!shares)
    throw UserError({"--split must be up to three weights, at least one above 0", text,
                     "give weights for train, validation and test, for example 969,30,1"});
  const std::vector<double> weights = normalize({shares->begin(), shares->end()});

  SplitMatrix matrix;
  double begin = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const double next = begin + weights[i];
    if (next > begin) matrix[i] = {begin, next};
    begin = next;
  }
  return matrix;
}

std::pair<std::int64_t, std::int64_t> split_range(std::pair<double, double> bookends,
                                                  std::int64_t count) {
  const auto round_half_even = [&](double fraction) {
    return static_cast<std::int64_t>(std::nearbyint(fraction * static_cast<double>(count)));
  };
  return {round_half_even(bookends.first), std::min(round_half_even(bookends.second), count)};
}

}  // namespace megatron
