// A tensor as sizes, strides and offset in a storage, without the storage: what is kept of a tensor
// whose bytes are elsewhere.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/as_strided.h>

#include <cstdint>
#include <vector>

namespace megatron {

class StorageView {
 public:
  /// `origin` is the offset in elements at which the tensor given to of() begins in the storage.
  explicit StorageView(const at::Tensor& tensor, std::int64_t origin = 0)
      : sizes_(tensor.sizes().vec()),
        strides_(tensor.strides().vec()),
        offset_(tensor.storage_offset() - origin) {}
  /// Returns the view of a tensor of the same dtype that holds the storage's elements from the
  /// origin on.
  at::Tensor of(const at::Tensor& elements) const {
    return at::as_strided(elements, sizes_, strides_, elements.storage_offset() + offset_);
  }

 private:
  std::vector<std::int64_t> sizes_, strides_;
  std::int64_t offset_;
};

}  // namespace megatron
