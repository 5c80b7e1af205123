#include "megatron/training/run/open_device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "megatron/base/error.h"
#include "megatron/ops/cuda_row_operations.h"
#include "megatron/optimizer/optimizer_operations.h"
#include "megatron/parallel/cuda_plugin.h"
#include "megatron/parallel/device_choice.h"

namespace megatron {
namespace {

/// Loads the CUDA plugin. Returns "", or the reason why none is usable.
std::string open_plugin() {
  const OpenedPlugin opened = open_cuda_plugin(cuda_plugin_path());
  if (opened.plugin == nullptr) return opened.problem;
  if (const std::string problem = opened.plugin->device_problem(); !problem.empty())
    return "CUDA reports: " + problem;
  register_cuda_row_operations(*opened.plugin->rows);
  register_cuda_optimizer_operations(*opened.plugin->optimizer);
  return "";
}

/// Returns the rank's GPU and makes it current in this thread.
c10::Device gpu_of(std::int64_t local_rank) {
  const c10::impl::VirtualGuardImpl cuda(c10::kCUDA);
  const std::int64_t count = cuda.deviceCount();
  if (local_rank >= count)
    throw UserError({"--device cuda: rank " + std::to_string(local_rank) +
                         " of this host needs a GPU of its own",
                     std::to_string(count) + " are visible",
                     "start fewer ranks on the host, or make more GPUs visible"});
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(local_rank));
  cuda.setDevice(device);
  return device;
}

}  // namespace

OpenedDevice open_device(const std::string& wanted, std::int64_t local_rank) {
  const DeviceChoice choice =
      choose_device(wanted, {.driver = query_cuda_driver, .open_plugin = open_plugin});
  return {.device = choice.is_cuda ? gpu_of(local_rank) : c10::Device(c10::kCPU),
          .reason = choice.reason};
}

std::string device_line(const OpenedDevice& device) {
  return "using device: " + device.device.str() + " (" + device.reason + ")";
}

}  // namespace megatron
