// What a run's metrics.jsonl says about its experts: curves over the iterations, and the load of
// every expert in the last iteration that has it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace megatron {

/// The choices of each expert in one iteration. NaN stands for anything but a number ≥ 0.
struct ExpertLoads {
  std::int64_t iteration = -1;             ///< -1: no iteration has loads
  std::vector<std::int64_t> layers;        ///< 0-based index in the model of each row
  std::vector<std::vector<double>> loads;  ///< a row for each layer; rows may differ in length
};

/// Returns each load divided by the mean of the finite loads of its layer: 1 is even. NaN stays
/// NaN, and 0 stays 0 also where the mean is 0.
std::vector<std::vector<double>> relative_loads(const ExpertLoads& loads);

/// Mean and extremes of the finite values; all NaN if there are none.
struct LayerRange {
  double mean, min, max;
};
LayerRange range_over_layers(const std::vector<double>& values);

}  // namespace megatron
