#include "megatron/checkpoint/host_snapshot.h"

#include <ATen/ops/empty.h>

namespace megatron {

void HostSnapshot::take(std::vector<WriteItem>& items) {
  for (WriteItem& item : items) {
    const at::Tensor tensor = item.tensor();
    const auto bytes = static_cast<std::int64_t>(tensor.nbytes());
    if (num_used_ == buffers_.size()) buffers_.emplace_back();
    at::Tensor& buffer = buffers_[num_used_++];
    if (!buffer.defined() || buffer.numel() != bytes)
      buffer =
          at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(tensor.device().is_cuda()));
    const at::Tensor copy = buffer.view(tensor.scalar_type()).view(tensor.sizes());
    copy.copy_(tensor);
    item.tensor = [copy] { return copy; };
  }
}

}  // namespace megatron
