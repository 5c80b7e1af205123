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
  auto* const begin = memory.mutable_data_ptr<std::uint8_t>();
  const auto past_page = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) % kPage);
  return begin + (kPage - past_page) % kPage;
}

}  // namespace megatron
