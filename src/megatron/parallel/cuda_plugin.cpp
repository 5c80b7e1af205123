#include "megatron/parallel/cuda_plugin.h"

#include <dlfcn.h>

namespace megatron {
namespace {

namespace fs = std::filesystem;

/// Returns the path of the library or program that contains this function.
fs::path own_path() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&cuda_plugin_path), &info) == 0 ||
      info.dli_fname == nullptr)
    return {};
  std::error_code error;
  const fs::path path = fs::canonical(info.dli_fname, error);
  return error ? fs::path(info.dli_fname) : path;
}

}  // namespace

fs::path cuda_plugin_path() {
  const fs::path folder = own_path().parent_path();
  const fs::path beside = folder / "libmegatron_cuda.so";
  return fs::exists(beside) ? beside : folder.parent_path() / "lib" / "libmegatron_cuda.so";
}

OpenedPlugin open_cuda_plugin(const fs::path& path) {
  if (!fs::exists(path)) return {.problem = path.string() + " does not exist"};
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return {.problem = path.string() +
                       " cannot be opened: " + (reason != nullptr ? reason : "unknown reason")};
  }
  const auto entry =
      reinterpret_cast<decltype(&megatron_cuda_plugin)>(::dlsym(library, "megatron_cuda_plugin"));
  const CudaPlugin* plugin = entry != nullptr ? entry() : nullptr;
  if (plugin == nullptr || plugin->version != kCudaPluginVersion)
    return {.problem = path.string() + " is of another version"};
  return {.plugin = plugin, .problem = {}};
}

}  // namespace megatron
