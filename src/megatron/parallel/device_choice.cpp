#include "megatron/parallel/device_choice.h"

#include "megatron/base/error.h"

namespace megatron {
namespace {

DeviceChoice refuse_or_fall_back(const std::string& wanted, const std::string& problem,
                                 const std::string& fix) {
  if (wanted == "cuda") throw UserError({"--device cuda", problem, fix});
  return {.is_cuda = false, .reason = problem};
}

/// Returns the fix for a plugin's problem, recognized by the messages of the dynamic loader and of
/// the CUDA runtime.
std::string plugin_fix(const std::string& problem) {
  if (problem.find("cannot open shared object file") != std::string::npos) {
    return "the NVIDIA libraries that LibTorch needs are fetched with `make deps CUDA=run`, or "
           "found through LD_LIBRARY_PATH; or use --device cpu";
  }
  if (problem.find("driver version") != std::string::npos)
    return "CUDA 13 needs an NVIDIA driver of version 580 or later; or use --device cpu";
  if (problem.find("no kernel image") != std::string::npos) {
    return "build the plugin for this GPU (cmake -B build -DMEGATRON_CUDA_ARCHITECTURES=...), or "
           "use --device cpu";
  }
  return "build it with `make build CUDA=1`, or use --device cpu";
}

}  // namespace

DeviceChoice choose_device(const std::string& wanted, const DeviceProbes& probes) {
  if (wanted == "cpu") return {.is_cuda = false, .reason = "--device cpu"};
  const CudaDriverInfo driver = probes.driver();
  if (!driver.problem.empty()) {
    return refuse_or_fall_back(
        wanted, driver.problem,
        "install the NVIDIA driver and make a GPU visible, or use --device cpu");
  }
  const std::string gpu = driver.gpu_name.empty() ? "an NVIDIA GPU" : driver.gpu_name;
  if (const std::string problem = probes.open_plugin(); !problem.empty()) {
    return refuse_or_fall_back(wanted, "there is " + gpu + ", but " + problem, plugin_fix(problem));
  }
  return {.is_cuda = true, .reason = gpu};
}

}  // namespace megatron
