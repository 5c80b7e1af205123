// What the routers of a mixture-of-experts model did in one step, over the whole batch.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace megatron {

/// One layer with experts.
struct LayerRouting {
  std::int64_t layer = 0;    ///< 0-based index in the model
  std::vector<double> load;  ///< choices of each expert that were not dropped
  double dropped = 0;        ///< choices beyond the capacity
  double entropy = 0;        ///< mean over tokens of Σ −p·ln p of the scores
  /// Auxiliary losses without their coefficients, means over the microbatches, under Megatron's
  /// names ("load_balancing_loss"). Those with a coefficient of 0 are left out.
  std::vector<std::pair<std::string, double>> losses;

  /// Returns the largest load divided by the mean; 1 is even. 0 without any choice.
  double imbalance() const;
};

/// Returns the means over layers of the auxiliary losses.
std::vector<std::pair<std::string, double>> mean_losses(const std::vector<LayerRouting>& layers);

}  // namespace megatron
