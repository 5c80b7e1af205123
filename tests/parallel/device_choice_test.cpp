#include "megatron/parallel/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/parallel/cuda_plugin.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::HasSubstr;

const CudaDriverInfo kGpu{.num_gpus = 1, .gpu_name = "NVIDIA H100", .problem = ""};
const CudaDriverInfo kNoDriver{
    .num_gpus = 0, .gpu_name = "", .problem = "no NVIDIA driver: libcuda.so.1 was not found"};

DeviceProbes probes(const CudaDriverInfo& driver, const std::string& plugin_problem = "") {
  return {.driver = [driver] { return driver; },
          .open_plugin = [plugin_problem] { return plugin_problem; }};
}

/// Returns the error message for `wanted`.
std::string refusal(const std::string& wanted, const DeviceProbes& probes) {
  return message_of([&] { choose_device(wanted, probes); });
}

TEST(DeviceChoice, CpuAsksNobody) {
  const DeviceProbes probes{.driver = []() -> CudaDriverInfo { throw InternalError("asked"); },
                            .open_plugin = []() -> std::string { throw InternalError("asked"); }};
  EXPECT_FALSE(choose_device("cpu", probes).is_cuda);
}

TEST(DeviceChoice, AutoTakesTheGpuWhenEverythingIsThere) {
  const DeviceChoice choice = choose_device("auto", probes(kGpu));
  EXPECT_TRUE(choice.is_cuda);
  EXPECT_EQ(choice.reason, "NVIDIA H100");
  EXPECT_TRUE(choose_device("cuda", probes(kGpu)).is_cuda);
}

TEST(DeviceChoice, AutoSaysWhatIsMissing) {
  EXPECT_FALSE(choose_device("auto", probes(kNoDriver)).is_cuda);
  EXPECT_THAT(choose_device("auto", probes(kNoDriver)).reason, HasSubstr("no NVIDIA driver"));
  const DeviceChoice without_plugin =
      choose_device("auto", probes(kGpu, "lib/libmegatron_cuda.so does not exist"));
  EXPECT_FALSE(without_plugin.is_cuda);
  EXPECT_THAT(
      without_plugin.reason,
      testing::AllOf(HasSubstr("NVIDIA H100"), HasSubstr("libmegatron_cuda.so does not exist")));
}

TEST(DeviceChoice, ThePluginIsNotOpenedWithoutADriver) {
  const DeviceProbes probes{.driver = [] { return kNoDriver; },
                            .open_plugin = []() -> std::string { throw InternalError("opened"); }};
  EXPECT_FALSE(choose_device("auto", probes).is_cuda);
}

TEST(DeviceChoice, CudaIsRefusedWithTheRemedy) {
  EXPECT_THAT(refusal("cuda", probes(kNoDriver)),
              testing::AllOf(HasSubstr("--device cuda"), HasSubstr("libcuda.so.1"),
                             HasSubstr("install the NVIDIA driver")));
  EXPECT_THAT(refusal("cuda", probes(kGpu, "libmegatron_cuda.so does not exist")),
              HasSubstr("make build CUDA=1"));
  EXPECT_THAT(
      refusal("cuda",
              probes(kGpu,
                     "libcufile.so.0: cannot open shared object file: No such file or directory")),
      HasSubstr("make deps CUDA=run"));
  EXPECT_THAT(
      refusal("cuda",
              probes(kGpu,
                     "CUDA reports: CUDA driver version is insufficient for CUDA runtime version")),
      HasSubstr("580 or later"));
  EXPECT_THAT(
      refusal(
          "cuda",
          probes(kGpu, "CUDA reports: no kernel image is available for execution on the device")),
      HasSubstr("MEGATRON_CUDA_ARCHITECTURES"));
}

TEST(CudaPlugin, AbsentAndForeignLibrariesAreNamed) {
  EXPECT_THAT(open_cuda_plugin("/nowhere/libmegatron_cuda.so").problem,
              HasSubstr("/nowhere/libmegatron_cuda.so does not exist"));
  EXPECT_THAT(open_cuda_plugin("/proc/self/maps").problem, HasSubstr("cannot be opened"));
  const OpenedPlugin foreign = open_cuda_plugin("/lib/x86_64-linux-gnu/libm.so.6");
  EXPECT_EQ(foreign.plugin, nullptr);
  EXPECT_THAT(foreign.problem, HasSubstr("is of another version"));
}

}  // namespace
}  // namespace megatron
