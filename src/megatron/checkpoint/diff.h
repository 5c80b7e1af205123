// `megatron checkpoint diff`: compares the weights of two sources.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace megatron {

struct WeightDifference {
  std::string name;
  std::string remark;  ///< "only in A", "shapes [2] and [3]"; empty when both could be compared
  double largest = 0;  ///< max |a − b|; NaN when exactly one side is NaN somewhere
};

/// Compares every weight of both sources, ascending by name. A source is anything that --load
/// accepts.
std::vector<WeightDifference> diff_checkpoints(const std::filesystem::path& left,
                                               const std::filesystem::path& right);

/// Formats one line per differing tensor and a closing line with the count.
std::string difference_text(const std::vector<WeightDifference>& differences);

}  // namespace megatron
