#include "megatron/training/open_device.h"

#include "megatron/optimizer/optimizer_operations.h"
#include "megatron/parallel/cuda_plugin.h"
#include "megatron/parallel/device_choice.h"
#include "megatron/transformer/row_operations.h"

namespace megatron {
namespace {

/// "", or why there is no usable plugin; a usable one serves from now on.
std::string open_plugin() {
  const OpenedPlugin opened = open_cuda_plugin(cuda_plugin_path());
  if (opened.plugin == nullptr) return opened.problem;
  if (const std::string problem = opened.plugin->device_problem(); !problem.empty()) return "CUDA reports: " + problem;
  provide_cuda_row_operations(*opened.plugin->rows);
  provide_cuda_optimizer_operations(*opened.plugin->optimizer);
  return "";
}

}  // namespace

OpenedDevice open_device(const std::string& wanted) {
  const DeviceChoice choice = choose_device(wanted, {.driver = ask_cuda_driver, .open_plugin = open_plugin});
  return {.device = choice.is_cuda ? c10::Device(c10::kCUDA, 0) : c10::Device(c10::kCPU), .reason = choice.reason};
}

std::string device_line(const OpenedDevice& device) { return "using device: " + device.device.str() + " (" + device.reason + ")"; }

}  // namespace megatron
