// `megatron checkpoint diff`: compares the weights of two sources.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace megatron {

struct TensorDifference {
  std::string name;
  std::string remark;  ///< "only in A", "shapes [2] and [3]"; empty when both could be compared
  double largest = 0;  ///< max |a − b|; NaN when one side is NaN where the other is not
};

/// Every weight of both sources, ascending by name. Each is anything that --load takes.
std::vector<TensorDifference> diff_checkpoints(const std::filesystem::path& left,
                                               const std::filesystem::path& right);

/// A line per differing tensor and a closing line with the count.
std::string difference_text(const std::vector<TensorDifference>& differences);

}  // namespace megatron
