#include "megatron/params/unit_buffers.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "megatron/base/error.h"

namespace megatron {

at::Tensor UnitBuffers::take(std::int64_t bytes) {
  MEGATRON_CHECK(bytes <= largest_, "a unit of ", bytes, " bytes, the largest has ", largest_);
  if (!free_.empty()) {
    at::Tensor buffer = std::move(free_.back());
    free_.pop_back();
    return buffer;
  }
  return at::empty({keeps_buffers_ ? largest_ : bytes},
                   at::TensorOptions().dtype(at::kByte).device(device_));
}

void UnitBuffers::give_back(at::Tensor buffer) {
  const bool is_unused = buffer.use_count() == 1 && buffer.storage().use_count() == 1;
  if (keeps_buffers_ && is_unused) free_.push_back(std::move(buffer));
}

at::Tensor BufferCursor::next(std::int64_t size, at::ScalarType dtype) {
  const std::int64_t bytes = size * static_cast<std::int64_t>(c10::elementSize(dtype));
  const at::Tensor part = buffer_.narrow(0, used_, bytes).view(dtype);
  used_ += bytes;
  return part;
}

}  // namespace megatron
