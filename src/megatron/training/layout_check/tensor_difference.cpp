#include "megatron/training/layout_check/tensor_difference.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/scalar_tensor.h>

#include <limits>

#include "megatron/base/error.h"
#include "megatron/checkpoint/tensor_bytes.h"

namespace megatron {
namespace {

/// Returns the coordinates of element `index` of a contiguous tensor.
Shape coordinates(std::int64_t index, at::IntArrayRef sizes) {
  Shape at(sizes.size());
  for (std::size_t d = sizes.size(); d-- > 0; index /= sizes[d]) at[d] = index % sizes[d];
  return at;
}

}  // namespace

at::Tensor select(const at::Tensor& whole, const std::vector<at::Tensor>& indices) {
  at::Tensor part = whole;
  for (std::size_t d = 0; d < indices.size(); ++d)
    if (indices[d].defined()) part = part.index_select(static_cast<std::int64_t>(d), indices[d]);
  return part;
}

TensorDifference difference(const at::Tensor& part, const at::Tensor& whole,
                            const std::vector<at::Tensor>& indices) {
  const at::Tensor expected = select(whole, indices);
  MEGATRON_CHECK(part.sizes() == expected.sizes(), part.sizes(), " against ", expected.sizes());
  if (part.numel() == 0) return {};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const at::Tensor found = part.detach().to(at::kDouble).contiguous(),
                   distances = (found - expected).abs().nan_to_num(kInfinity, kInfinity, kInfinity);
  const auto worst = distances.argmax().item<std::int64_t>();
  TensorDifference result{.distance = distances.view({-1})[worst].item<double>(),
                          .at = coordinates(worst, part.sizes()),
                          .found = found.view({-1})[worst].item<double>(),
                          .expected = expected.contiguous().view({-1})[worst].item<double>()};
  for (std::size_t d = 0; d < indices.size(); ++d)
    if (indices[d].defined()) result.at[d] = indices[d][result.at[d]].item<std::int64_t>();
  return result;
}

TensorDifference difference(const at::Tensor& local, const at::Tensor& whole,
                            const std::vector<TensorSlice>& slices) {
  TensorDifference worst;
  for (const TensorSlice& slice : slices) {
    TensorDifference one =
        difference(narrow_to(local, slice.local_offset, slice.shape),
                   narrow_to(whole, slice.global_offset, slice.shape), std::vector<at::Tensor>());
    if (one.distance <= worst.distance) continue;
    for (std::size_t d = 0; d < one.at.size(); ++d) one.at[d] += slice.global_offset[d];
    worst = std::move(one);
  }
  return worst;
}

double largest_magnitude(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? 0 : tensor.abs().max().item<double>();
}

void copy_slices(const at::Tensor& local, const std::vector<TensorSlice>& slices,
                 const at::Tensor& whole) {
  for (const TensorSlice& slice : slices)
    narrow_to(whole, slice.global_offset, slice.shape)
        .copy_(narrow_to(local, slice.local_offset, slice.shape));
}

}  // namespace megatron
