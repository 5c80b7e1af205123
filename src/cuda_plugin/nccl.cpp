// Makes NCCL backends (no_nccl.cpp replaces this file where nccl.h is missing).
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "cuda_plugin/operations.h"

namespace megatron::cuda_plugin {

c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, std::chrono::milliseconds timeout) {
  const auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

}  // namespace megatron::cuda_plugin
