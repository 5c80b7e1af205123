#include "megatron/training/layout_check/coverage.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "megatron/checkpoint/tensor_bytes.h"

namespace megatron {
namespace {

/// Sets the part of `mask` that `indices` select along its dimensions from `dim` on.
void fill(at::Tensor mask, const std::vector<at::Tensor>& indices, std::size_t dim) {
  while (dim < indices.size() && !indices[dim].defined()) ++dim;
  if (dim == indices.size()) {
    mask.fill_(1);
    return;
  }
  const auto d = static_cast<std::int64_t>(dim);
  at::Tensor part = mask.index_select(d, indices[dim]);
  fill(part, indices, dim + 1);
  mask.index_copy_(d, indices[dim], part);
}

}  // namespace

at::Tensor& Coverage::mask_of(const Key& key, const at::Tensor& whole) {
  at::Tensor& mask = masks_[key];
  if (!mask.defined()) mask = at::zeros(whole.sizes(), at::kByte);
  return mask;
}

void Coverage::add(CheckedKind kind, const std::string& name, const at::Tensor& whole,
                   const std::vector<TensorSlice>& slices) {
  const std::lock_guard lock(mutex_);
  const at::Tensor& mask = mask_of({kind, name, 0}, whole);
  for (const TensorSlice& slice : slices)
    narrow_to(mask, slice.global_offset, slice.shape).fill_(1);
}

void Coverage::add(const std::string& op, std::int64_t ordinal, const at::Tensor& whole,
                   const std::vector<at::Tensor>& indices) {
  const std::lock_guard lock(mutex_);
  fill(mask_of({CheckedKind::activation, op, ordinal}, whole), indices, 0);
}

void Coverage::add_gap(const Key& key, const at::Tensor& whole, std::vector<Gap>& gaps) const {
  const auto found = masks_.find(key);
  const at::Tensor mask =
      found == masks_.end() ? at::zeros(whole.sizes(), at::kByte) : found->second;
  const std::int64_t num_missing = mask.numel() - mask.sum().item<std::int64_t>();
  if (num_missing == 0) return;
  const at::Tensor missing = mask.eq(0).view({-1});
  std::int64_t index = missing.to(at::kByte).argmax().item<std::int64_t>();
  Gap gap{std::get<0>(key), std::get<1>(key), num_missing, mask.numel(),
          Shape(static_cast<std::size_t>(mask.dim()))};
  for (std::size_t d = gap.first.size(); d-- > 0;) {
    const std::int64_t size = mask.size(static_cast<std::int64_t>(d));
    gap.first[d] = index % size;
    index /= size;
  }
  gaps.push_back(std::move(gap));
}

std::vector<Gap> Coverage::gaps(const ReferenceStep& reference,
                                const std::set<std::string>& not_compared) const {
  const std::lock_guard lock(mutex_);
  std::vector<Gap> gaps;
  for (const CheckedKind kind :
       {CheckedKind::initial_weight, CheckedKind::gradient, CheckedKind::updated_weight}) {
    for (const auto& [name, whole] : reference.of(kind)) add_gap({kind, name, 0}, whole, gaps);
  }
  for (const std::string& op : reference.ops) {
    if (not_compared.contains(op)) continue;
    for (const auto& [ordinal, whole] : reference.activations.at(op)) {
      // Masks of outputs of three and more dimensions have the shape [rows, b, channels].
      const bool has_rows = whole.dim() >= 3;
      add_gap({CheckedKind::activation, op, ordinal}, has_rows ? whole.flatten(2) : whole, gaps);
    }
  }
  return gaps;
}

}  // namespace megatron
