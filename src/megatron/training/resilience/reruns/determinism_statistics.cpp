#include "megatron/training/resilience/reruns/determinism_statistics.h"

#include <algorithm>
#include <numeric>

#include "megatron/base/format.h"

namespace megatron {
namespace {

/// Formats 12,345 like Python's `{:,}`.
std::string grouped(std::size_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

}  // namespace

void DeterminismStatistics::record(double difference) {
  if (difference == 0) {
    ++num_zeros_;
    return;
  }
  if (differences_.size() < capacity_)
    differences_.push_back(difference);
  else
    differences_[next_ % capacity_] = difference;
  ++next_;
  max_ = std::max(max_, difference);
}

std::string DeterminismStatistics::text() const {
  if (differences_.empty()) return grouped(num_zeros_) + " samples, all identical";
  std::vector<double> sorted = differences_;
  std::ranges::sort(sorted);
  const std::size_t total = num_zeros_ + sorted.size();
  const auto percentile = [&](double p) {
    const auto place = static_cast<std::size_t>(static_cast<double>(total) * p);
    return place >= num_zeros_ ? format("%.3E", sorted[place - num_zeros_]) : std::string("0.0");
  };
  const double average =
      std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(total);
  return grouped(total) + "/" + grouped(num_zeros_) +
         format(" total/identical samples, rel. variability: avg= %.3E, ", average) +
         "p50= " + percentile(0.5) + ", p90= " + percentile(0.9) + ", p99= " + percentile(0.99) +
         ", p99.9= " + percentile(0.999) + format(", max: %.3E", max_);
}

}  // namespace megatron
