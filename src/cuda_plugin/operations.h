// The parts of the plugin's table of functions, and the helpers of its launches.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "kernels/optimizer_operations.h"
#include "kernels/row_operations.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace megatron::cuda_plugin {

extern const kernels::RowOperations kRowOperations;
extern const kernels::OptimizerOperations kOptimizerOperations;

/// Returns ATen's current stream on the calling thread's device, a cudaStream_t.
void* current_stream();
/// Throws c10::Error if `problem` is not null. `kernel` names the kernel whose launch failed.
void check_launch(const char* kernel, const char* problem);

/// Returns an NCCL backend whose operations time out, or null if the plugin was built without NCCL.
c10::intrusive_ptr<c10d::Backend> make_nccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, std::chrono::milliseconds timeout);

}  // namespace megatron::cuda_plugin
