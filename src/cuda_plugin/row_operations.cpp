// Launches the row kernels on ATen's current stream.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include "cuda_plugin/operations.h"
#include "kernels/cuda/launchers.h"

namespace megatron::cuda_plugin {
namespace {

void dropout(const kernels::DropoutArguments& arguments) {
  check_launch("dropout", kernels::cuda::dropout(arguments, current_stream()));
}

void rms_norm(const kernels::RmsNormArguments& arguments) {
  check_launch("rms_norm", kernels::cuda::rms_norm(arguments, current_stream()));
}

void rms_norm_backward(const kernels::RmsNormBackwardArguments& arguments) {
  const auto bytes =
      static_cast<std::size_t>(kernels::cuda::weight_gradient_workspace_bytes(arguments));
  // The allocator reuses freed memory only after the current stream has passed this point.
  const c10::DataPtr workspace = c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
  check_launch("rms_norm_backward",
               kernels::cuda::rms_norm_backward(arguments, workspace.get(), current_stream()));
}

void rotary(const kernels::RotaryArguments& arguments) {
  check_launch("rotary", kernels::cuda::rotary(arguments, current_stream()));
}

void append_to_cache(const kernels::PagedAttentionArguments& arguments) {
  check_launch("append_to_cache", kernels::cuda::append_to_cache(arguments, current_stream()));
}

void paged_attention(const kernels::PagedAttentionArguments& arguments) {
  check_launch("paged_attention", kernels::cuda::paged_attention(arguments, current_stream()));
}

}  // namespace

void* current_stream() { return c10::cuda::getCurrentCUDAStream().stream(); }

void check_launch(const char* kernel, const char* problem) {
  TORCH_CHECK(problem == nullptr, "CUDA kernel ", kernel, ": ", problem);
}

constinit const kernels::RowOperations kRowOperations{.dropout = dropout,
                                                      .rms_norm = rms_norm,
                                                      .rms_norm_backward = rms_norm_backward,
                                                      .rotary = rotary,
                                                      .append_to_cache = append_to_cache,
                                                      .paged_attention = paged_attention};

}  // namespace megatron::cuda_plugin
