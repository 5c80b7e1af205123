#include "megatron/training/loop/open_offload_store.h"

#include "megatron/base/error.h"
#include "megatron/base/offload_file.h"

namespace megatron {

std::unique_ptr<OffloadStore> open_offload_store(const OffloadStoreRequest& request,
                                                 c10::Device device, StartupWarnings& warnings,
                                                 std::ostream& out) {
  const std::string& folder = request.config.offload_folder;
  if (device.is_cuda()) {
    if (folder.empty()) return make_host_offload_store(device);
    throw UserError({"--offload-folder", "is for CPUs: a GPU offloads to the memory of its host",
                     "leave --offload-folder out"});
  }
  if (folder.empty())
    throw UserError({request.flag, "on a CPU needs another memory than its own",
                     "add --offload-folder DIR, a folder on a local disk"});
  auto file = std::make_shared<OffloadFile>(
      OffloadFile::Options{.folder = folder, .max_bytes_in_flight = request.max_bytes_in_flight});
  if (file->is_in_memory())
    warnings.add("--offload-folder " + folder +
                     " is itself in memory (tmpfs), so that offloading frees none: give a folder "
                     "on a disk",
                 out);
  return make_file_offload_store(std::move(file));
}

}  // namespace megatron
