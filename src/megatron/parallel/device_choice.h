// Chooses the device that a command computes on (--device auto | cpu | cuda), and says why.
#pragma once

#include <functional>
#include <string>

namespace megatron {

struct CudaDriverInfo {
  int num_gpus = 0;
  std::string gpu_name;  ///< Name of the first GPU, or "" when there is none.
  std::string problem;   ///< Why no GPU can be used, or "" when one can.
};

/// Queries the NVIDIA driver through dlopen, without linking or loading a CUDA library.
CudaDriverInfo query_cuda_driver();

struct DeviceChoice {
  bool is_cuda = false;
  std::string reason;  ///< One phrase for the start-up report.
};

/// Queries behind the choice, made in this order and only when needed.
struct DeviceProbes {
  std::function<CudaDriverInfo()> driver;
  std::function<std::string()> open_plugin;  ///< Returns "", or why no plugin is usable.
};

/// Chooses by `wanted`: auto, cpu or cuda. auto takes the GPU when driver, GPU and plugin are all
/// present. Throws UserError when cuda is requested and one of them is missing.
DeviceChoice choose_device(const std::string& wanted, const DeviceProbes& probes);

}  // namespace megatron
