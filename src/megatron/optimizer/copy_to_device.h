// Copies an array of plain structs to a device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>

#include <type_traits>
#include <vector>

namespace megatron {

/// Returns a byte tensor [rows.size() · sizeof(Row)] on `device` that holds a copy of `rows`.
template <class Row>
at::Tensor copy_to_device(const std::vector<Row>& rows, c10::Device device) {
  static_assert(std::is_trivially_copyable_v<Row>);
  const auto bytes = static_cast<std::int64_t>(rows.size() * sizeof(Row));
  return at::from_blob(const_cast<Row*>(rows.data()), {bytes}, at::TensorOptions().dtype(at::kByte))
      .to(device, false, /*copy=*/true);
}

}  // namespace megatron
