#include "megatron/parallel/cuda_driver.h"

#include <dlfcn.h>

#include <array>

namespace megatron {
namespace {

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

}  // namespace megatron
