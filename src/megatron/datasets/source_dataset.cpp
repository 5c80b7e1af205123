#include "megatron/datasets/source_dataset.h"

#include <cmath>

namespace megatron {

std::int64_t whole_epochs(double epochs, std::int64_t count) {
  const double product = epochs * static_cast<double>(count), nearest = std::round(product);
  const bool is_whole = std::abs(product - nearest) <= 1e-12 * nearest;
  return static_cast<std::int64_t>(is_whole ? nearest : std::floor(product));
}

std::string SourceDataset::describe(std::int64_t index) const {
  return "dataset " + name_ + ", " + std::string(split_name(part_.split)) + " sample " +
         std::to_string(index);
}

std::int64_t SourceDataset::samples_of_epochs(double epochs) const {
  return whole_epochs(epochs, size());
}

}  // namespace megatron
