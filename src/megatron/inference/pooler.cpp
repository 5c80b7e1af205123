#include "megatron/inference/pooler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "megatron/base/error.h"

namespace megatron {

std::int64_t Pooler::num_rows(std::int64_t first, std::int64_t end) const {
  if (pooling_ == Pooling::none) return 0;
  if (pooling_ == Pooling::last) return end == num_tokens_ ? 1 : 0;
  return std::max<std::int64_t>(0, end - std::max(first, num_added_));
}

void Pooler::add(const at::Tensor& rows) {
  const auto width = static_cast<std::size_t>(rows.size(1));
  sums_.resize(width);
  const float* row = rows.const_data_ptr<float>();
  for (std::int64_t i = 0; i < rows.size(0); ++i, row += width)
    for (std::size_t k = 0; k < width; ++k) sums_[k] += row[k];
  num_added_ += rows.size(0);
}

std::vector<float> Pooler::embedding(bool normalizes) const {
  MEGATRON_CHECK(num_added_ == (pooling_ == Pooling::last ? 1 : num_tokens_), num_added_,
                 " rows of ", num_tokens_, " tokens");
  double divisor = static_cast<double>(num_added_);
  if (normalizes)
    divisor = std::sqrt(std::inner_product(sums_.begin(), sums_.end(), sums_.begin(), 0.0));
  std::vector<float> result;
  for (const double sum : sums_)
    result.push_back(static_cast<float>(divisor > 0 ? sum / divisor : 0));
  return result;
}

}  // namespace megatron
