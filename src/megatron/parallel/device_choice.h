// --device auto | cpu | cuda: which device a command computes on, and why.
#pragma once

#include <functional>
#include <string>

#include "megatron/parallel/cuda_driver.h"

namespace megatron {

struct DeviceChoice {
  bool is_cuda = false;
  std::string reason;  ///< in words, for the start-up report
};

/// What the choice asks, in this order and no further than needed.
struct DeviceProbes {
  std::function<CudaDriverInfo()> driver;
  std::function<std::string()> open_plugin;  ///< "", or why there is no usable plugin
};

/// `wanted` is auto, cpu or cuda. auto takes the GPU when driver, GPU and plugin are all there.
/// UserError when cuda is asked for and one is missing.
DeviceChoice choose_device(const std::string& wanted, const DeviceProbes& probes);

}  // namespace megatron
