// The plugin libmegatron_cuda.so as the engine sees it: one table behind plain C. It links
// torch_cuda, so opening it is what makes ATen know CUDA; that must happen before ATen is first
// asked about CUDA.
#pragma once

#include <c10/util/intrusive_ptr.h>

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

/// Counts changes of CudaPlugin and of the structures it passes.
inline constexpr std::int32_t kCudaPluginVersion = 2;

struct CudaPlugin {
  std::int32_t version;
  const kernels::RowOperations* rows;
  const kernels::OptimizerOperations* optimizer;
  /// Empty, or why the first GPU cannot be used with this build.
  std::string (*device_problem)();
  /// NCCL between the processes of `store` on the current device; null when the plugin was built
  /// without NCCL.
  c10::intrusive_ptr<c10d::Backend> (*make_nccl)(const c10::intrusive_ptr<c10d::Store>& store,
                                                 int rank, int size);
};

/// Where the plugin lies when it was built: beside the engine's library, or in ../lib of a test
/// program.
std::filesystem::path cuda_plugin_path();

struct OpenedPlugin {
  const CudaPlugin* plugin = nullptr;  ///< lives as long as the process
  std::string problem;                 ///< why there is none
};
/// Opens the library at `path`; a second call gives the same answer.
OpenedPlugin open_cuda_plugin(const std::filesystem::path& path);

}  // namespace megatron

/// The one symbol that the engine looks up.
extern "C" const megatron::CudaPlugin* megatron_cuda_plugin();
