// Initializes the device that --device selects, before any tensor exists.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace megatron {

struct OpenedDevice {
  c10::Device device{c10::kCPU};
  std::string reason;  ///< the GPU's name, or the reason why the CPU is used
};

/// Initializes the device `wanted` ("auto", "cpu" or "cuda"); a rank uses the GPU with index
/// `local_rank`. Loads the CUDA plugin when a GPU is used and registers its kernels. Call it before
/// the first tensor operation, because ATen checks only once whether CUDA is available. UserError
/// when "cuda" is requested and not available.
OpenedDevice open_device(const std::string& wanted, std::int64_t local_rank = 0);

/// Returns "using device: cpu (no NVIDIA driver: …)".
std::string device_line(const OpenedDevice& device);

}  // namespace megatron
