#include "megatron/ops/cuda_row_operations.h"

#include <atomic>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::atomic<const kernels::RowOperations*>& registered() {
  static std::atomic<const kernels::RowOperations*> operations{nullptr};
  return operations;
}

}  // namespace

void register_cuda_row_operations(const kernels::RowOperations& operations) {
  registered().store(&operations, std::memory_order_release);
}

const kernels::RowOperations& cuda_row_operations() {
  const kernels::RowOperations* operations = registered().load(std::memory_order_acquire);
  MEGATRON_CHECK(operations != nullptr, "tensors are on a CUDA device, but no plugin is loaded");
  return *operations;
}

}  // namespace megatron
