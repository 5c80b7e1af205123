// Queries the NVIDIA driver through dlopen, without linking or loading a CUDA library.
#pragma once

#include <string>

namespace megatron {

struct CudaDriverInfo {
  int num_gpus = 0;
  std::string gpu_name;  ///< Name of the first GPU, or "" when there is none.
  std::string problem;   ///< Why no GPU can be used, or "" when one can.
};

CudaDriverInfo query_cuda_driver();

}  // namespace megatron
