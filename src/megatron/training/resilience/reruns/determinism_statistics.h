// Collects how much a step's results differ when it runs twice (--rerun-mode report_stats) and
// formats them as Megatron does.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace megatron {

class DeterminismStatistics {
 public:
  /// Keeps the last `capacity` nonzero differences.
  explicit DeterminismStatistics(std::size_t capacity = 100000) : capacity_(capacity) {}
  void record(double difference);
  /// Returns "2,000/1,998 total/identical samples, rel. variability: avg= …, p50= …, …, max: …" or
  /// "2,000 samples, all identical".
  std::string text() const;

 private:
  std::size_t capacity_, next_ = 0;
  std::size_t num_zeros_ = 0;
  double max_ = 0;
  std::vector<double> differences_;
};

}  // namespace megatron
