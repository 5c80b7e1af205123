// Chooses the device that a command computes on (--device auto | cpu | cuda), and says why.
#pragma once

#include <functional>
#include <string>

#include "megatron/parallel/cuda_driver.h"

namespace megatron {

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
