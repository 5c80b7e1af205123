#include "megatron/parallel/device_choice.h"

#include <dlfcn.h>

#include <array>

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

/// The functions of the driver's C interface (cuda.h) that query it. Each returns 0 on success.
struct DriverFunctions {
  int (*init)(unsigned flags) = nullptr;
  int (*device_count)(int* count) = nullptr;
  int (*device_get)(int* device, int ordinal) = nullptr;
  int (*device_name)(char* name, int length, int device) = nullptr;
  int (*error_string)(int error, const char** text) = nullptr;

  bool complete() const {
    return init && device_count && device_get && device_name && error_string;
  }
};

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
}

DriverFunctions functions_of(void* library) {
  DriverFunctions result;
  find(library, "cuInit", result.init);
  find(library, "cuDeviceGetCount", result.device_count);
  find(library, "cuDeviceGet", result.device_get);
  find(library, "cuDeviceGetName", result.device_name);
  find(library, "cuGetErrorString", result.error_string);
  return result;
}

std::string error_text(const DriverFunctions& driver, int error) {
  const char* text = nullptr;
  driver.error_string(error, &text);
  return text != nullptr ? text : "error " + std::to_string(error);
}

}  // namespace

CudaDriverInfo query_cuda_driver() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return {.gpu_name = {}, .problem = "no NVIDIA driver: libcuda.so.1 was not found"};
  const DriverFunctions driver = functions_of(library);
  if (!driver.complete())
    return {.gpu_name = {}, .problem = "libcuda.so.1 is not an NVIDIA driver or is too old"};
  if (const int error = driver.init(0))
    return {.gpu_name = {}, .problem = "the NVIDIA driver reports: " + error_text(driver, error)};
  CudaDriverInfo result;
  if (const int error = driver.device_count(&result.num_gpus)) {
    return {.gpu_name = {}, .problem = "the NVIDIA driver reports: " + error_text(driver, error)};
  }
  if (result.num_gpus == 0) {
    result.problem = "the NVIDIA driver sees no GPU (is CUDA_VISIBLE_DEVICES empty?)";
    return result;
  }
  int device = 0;
  std::array<char, 256> name{};
  if (driver.device_get(&device, 0) == 0 &&
      driver.device_name(name.data(), static_cast<int>(name.size()) - 1, device) == 0) {
    result.gpu_name = name.data();
  }
  return result;
}

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
