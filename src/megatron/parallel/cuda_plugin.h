// The C interface of the plugin libmegatron_cuda.so: one table of functions. The plugin links
// torch_cuda, so opening it registers CUDA with ATen. Open it before ATen is first asked about
// CUDA.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace megatron {

namespace kernels {
struct RowOperations;
struct OptimizerOperations;
}  // namespace kernels

/// Version of CudaPlugin and of the structures that it passes. Increment it with every change.
inline constexpr std::int32_t kCudaPluginVersion = 5;

struct CudaPlugin {
  std::int32_t version;
  const kernels::RowOperations* rows;
  const kernels::OptimizerOperations* optimizer;
  /// Returns why this build cannot use the first GPU, or "" when it can.
  std::string (*device_problem)();
  /// Makes an NCCL backend on the current device between the processes of `store`. `timeout` limits
  /// each of its operations. Null when the plugin was built without NCCL.
  c10::intrusive_ptr<c10d::Backend> (*make_nccl)(const c10::intrusive_ptr<c10d::Store>& store,
                                                 int rank, int size,
                                                 std::chrono::milliseconds timeout);
};

/// Returns where the build puts the plugin: beside the engine's library, or in ../lib of a test
/// program.
std::filesystem::path cuda_plugin_path();

struct OpenedPlugin {
  const CudaPlugin* plugin = nullptr;  ///< Valid for the lifetime of the process.
  std::string problem;                 ///< Why there is no plugin, or "" when there is one.
};
/// Opens the library at `path`. A second call returns the first result.
OpenedPlugin open_cuda_plugin(const std::filesystem::path& path);

}  // namespace megatron

/// The one symbol that the engine looks up in the plugin.
extern "C" const megatron::CudaPlugin* megatron_cuda_plugin();
