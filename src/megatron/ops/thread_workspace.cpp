#include "megatron/ops/thread_workspace.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

namespace megatron {

void* thread_workspace(std::int64_t bytes) {
  constexpr std::int64_t kPage = 4096;
  thread_local at::Tensor memory;
  if (!memory.defined() || memory.numel() < bytes + kPage) {
    memory.reset();
    memory = at::empty({(bytes / kPage + 2) * kPage}, at::kByte);
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(memory.mutable_data_ptr());
  return reinterpret_cast<void*>((begin + kPage - 1) / kPage * kPage);
}

}  // namespace megatron
