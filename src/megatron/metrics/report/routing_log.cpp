#include "megatron/metrics/report/routing_log.h"

#include <cmath>

namespace megatron {

LayerRange range_over_layers(const std::vector<double>& values) {
  LayerRange range{0, std::nan(""), std::nan("")};
  double count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    range.mean += value;
    range.min = std::fmin(range.min, value);
    range.max = std::fmax(range.max, value);
    ++count;
  }
  range.mean = count > 0 ? range.mean / count : std::nan("");
  return range;
}

std::vector<std::vector<double>> relative_loads(const ExpertLoads& loads) {
  std::vector<std::vector<double>> relative = loads.loads;
  for (std::vector<double>& row : relative) {
    const double mean = range_over_layers(row).mean;
    for (double& load : row) load = load == 0 ? 0 : load / mean;
  }
  return relative;
}

}  // namespace megatron
