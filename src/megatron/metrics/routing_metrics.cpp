#include "megatron/metrics/routing_metrics.h"

#include <algorithm>
#include <numeric>

namespace megatron {

double LayerRouting::imbalance() const {
  const double sum = std::accumulate(load.begin(), load.end(), 0.0);
  if (sum <= 0) return 0;
  return *std::max_element(load.begin(), load.end()) * static_cast<double>(load.size()) / sum;
}

std::vector<std::pair<std::string, double>> mean_losses(const std::vector<LayerRouting>& layers) {
  std::vector<std::pair<std::string, double>> means;
  if (layers.empty()) return means;
  means = layers.front().losses;
  for (auto& [name, mean] : means) mean = 0;
  for (const LayerRouting& layer : layers) {
    for (std::size_t i = 0; i < means.size(); ++i)
      means[i].second += layer.losses[i].second / static_cast<double>(layers.size());
  }
  return means;
}

}  // namespace megatron
