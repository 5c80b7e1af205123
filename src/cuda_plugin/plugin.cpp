// The entry point of libmegatron_cuda.so, which gives the engine its table of functions.
#include <cuda_runtime_api.h>

#include "cuda_plugin/operations.h"
#include "kernels/cuda/launchers.h"
#include "megatron/parallel/cuda_plugin.h"

namespace megatron::cuda_plugin {
namespace {

std::string device_problem() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (error != cudaSuccess) return cudaGetErrorString(error);
  if (count == 0) return "the CUDA runtime sees no GPU";
  const char* problem = kernels::cuda::device_problem();
  return problem != nullptr ? problem : "";
}

constexpr CudaPlugin kPlugin{.version = kCudaPluginVersion,
                             .rows = &kRowOperations,
                             .optimizer = &kOptimizerOperations,
                             .device_problem = device_problem,
                             .make_nccl = make_nccl};

}  // namespace
}  // namespace megatron::cuda_plugin

extern "C" const megatron::CudaPlugin* megatron_cuda_plugin() {
  return &megatron::cuda_plugin::kPlugin;
}
