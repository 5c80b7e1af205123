#include "megatron/checkpoint/non_finite.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/isfinite.h>

#include <cmath>

namespace megatron {
namespace {

constexpr std::int64_t kChunk = 1 << 24;  ///< elements per isfinite() call, which makes copies

}  // namespace

std::int64_t count_non_finite(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  const auto [least, largest] = at::aminmax(tensor);  // both are NaN when any element is NaN
  if (std::isfinite(least.item<double>()) && std::isfinite(largest.item<double>())) return 0;
  std::int64_t count = 0;
  for (const at::Tensor& chunk : tensor.reshape({-1}).split(kChunk))
    count += chunk.numel() - at::isfinite(chunk).sum().item<std::int64_t>();
  return count;
}

std::string non_finite_error(const std::string& name, const at::Tensor& tensor) {
  const std::int64_t count = count_non_finite(tensor);
  if (count == 0) return {};
  return "tensor '" + name + "': " + std::to_string(count) + " of " +
         std::to_string(tensor.numel()) + " values are not finite";
}

}  // namespace megatron
