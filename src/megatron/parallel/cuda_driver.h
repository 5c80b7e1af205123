// What the NVIDIA driver says, asked through dlopen: no CUDA library is linked or loaded for it.
#pragma once

#include <string>

namespace megatron {

struct CudaDriverInfo {
  int num_gpus = 0;
  std::string gpu_name;  ///< of the first, "" when there is none
  std::string problem;   ///< why no GPU can be had, "" when one can
};

CudaDriverInfo query_cuda_driver();

}  // namespace megatron
