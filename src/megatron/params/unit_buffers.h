// Storage for what the units of a model hold only while they are used: gathered weights, and
// gradients that are not yet reduced. Buffers are reused, so that memory does not fragment.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace megatron {

class UnitBuffers {
 public:
  explicit UnitBuffers(c10::Device device) : device_(device) {}

  /// Allocates the buffers for passes through units of these sizes, in this order and `count` at a
  /// time. A step that allocated them where its temporary tensors end would divide
  /// the memory that the next step's need. Units of 0 bytes have none.
  void reserve(const std::vector<std::int64_t>& sizes, std::size_t count);
  /// Returns a flat tensor of at least `bytes` bytes (kByte), undefined for 0: the smallest free
  /// buffer that is large enough, if it is at most twice as large, or a new one in place of a
  /// smaller free one. So there are no more buffers of similar sizes than are in use at once.
  at::Tensor take(std::int64_t bytes);
  /// Takes a buffer back, which may be undefined. One that an op still refers to is not reused.
  void give_back(at::Tensor buffer);
  /// Returns the bytes of the buffers that are kept and not in use.
  std::int64_t free_bytes() const;

 private:
  c10::Device device_;
  std::vector<at::Tensor> free_;  ///< ascending by size
};

/// Returns the sizes in the order in which forward and then backward visit the units, from those in
/// the order of backward. The last unit of forward is the first of backward.
std::vector<std::int64_t> forward_and_backward(const std::vector<std::int64_t>& backward);

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
