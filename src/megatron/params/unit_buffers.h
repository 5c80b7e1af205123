// Storage for what the units of a model hold only while they are used: gathered weights, and
// gradients that are not yet reduced.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace megatron {

class UnitBuffers {
 public:
  /// With `keeps_buffers`, every buffer has `largest` bytes and is reused, so that memory does not
  /// fragment. Without, a buffer has the size of its unit and is freed with its last tensor.
  UnitBuffers(c10::Device device, std::int64_t largest, bool keeps_buffers)
      : device_(device), largest_(largest), keeps_buffers_(keeps_buffers) {}

  /// Returns a flat tensor of at least `bytes` bytes (kByte).
  at::Tensor take(std::int64_t bytes);
  /// Takes a buffer back. One that an op still refers to is not reused.
  void give_back(at::Tensor buffer);

 private:
  c10::Device device_;
  std::int64_t largest_;
  bool keeps_buffers_;
  std::vector<at::Tensor> free_;
};

/// Cuts tensors out of a buffer, one after the other.
class BufferCursor {
 public:
  explicit BufferCursor(at::Tensor buffer) : buffer_(std::move(buffer)) {}
  /// Returns the next `size` elements of `dtype`.
  at::Tensor next(std::int64_t size, at::ScalarType dtype);

 private:
  at::Tensor buffer_;
  std::int64_t used_ = 0;
};

}  // namespace megatron
