// Makes the device of --device ready before any tensor exists.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

namespace megatron {

struct OpenedDevice {
  c10::Device device{c10::kCPU};
  std::string reason;  ///< in words: the GPU's name, or why it is the CPU
};

/// `wanted` is auto, cpu or cuda; on GPUs each rank of a host has the one of its number. Opens the
/// CUDA plugin where it is needed and gives layers and optimizer its kernels. Call it before the
/// first tensor operation: ATen decides once whether it knows CUDA. UserError when cuda is asked
/// for and cannot be had.
OpenedDevice open_device(const std::string& wanted, std::int64_t local_rank = 0);

/// "using device: cpu (no NVIDIA driver: …)".
std::string device_line(const OpenedDevice& device);

}  // namespace megatron
