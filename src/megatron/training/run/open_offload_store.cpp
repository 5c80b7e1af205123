#include "megatron/training/run/open_offload_store.h"

#include <ostream>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/offload_file.h"
#include "megatron/base/words.h"
#include "megatron/config/activation_plan.h"
#include "megatron/config/memory_config.h"

namespace megatron {

namespace {

/// Throws a UserError if the device cannot offload to the folder of --offload-folder or without it.
void check_folder(const std::string& folder, const std::string& flag, c10::Device device) {
  if (device.is_cuda()) {
    if (folder.empty()) return;
    throw UserError({"--offload-folder", "is for CPUs: a GPU offloads to the memory of its host",
                     "leave --offload-folder out"});
  }
  if (folder.empty())
    throw UserError({flag, "on a CPU needs another memory than its own",
                     "add --offload-folder DIR, a folder on a local disk"});
}

}  // namespace

std::string offloading_flag(const MemoryConfig& memory) {
  if (memory.has_budget()) return "--memory-budget";
  if (memory.activation_plan.find("offload") != std::string::npos)
    return "--activation-plan with offload";
  if (memory.offload.fine_grained_activation_offloading)
    return "--fine-grained-activation-offloading";
  return memory.offload.cpu_offloading ? "--cpu-offloading" : "--cpu-offloading-num-layers";
}

void leave_in_host_memory(MemoryConfig& memory, c10::Device device, std::ostream& out) {
  OffloadConfig& config = memory.offload;
  if (!device.is_cpu() || !config.offload_folder.empty() || is_planned(memory)) return;
  std::vector<std::string> flags;
  const auto turn_off = [&](auto& value, const char* flag) {
    if (std::exchange(value, {})) flags.emplace_back(flag);
  };
  turn_off(config.cpu_offloading, "--cpu-offloading");
  turn_off(config.cpu_offloading_num_layers, "--cpu-offloading-num-layers");
  turn_off(config.fine_grained_activation_offloading, "--fine-grained-activation-offloading");
  turn_off(config.optimizer_cpu_offload, "--optimizer-cpu-offload");
  if (flags.empty()) return;
  out << "note: " << joined_text(flags)
      << ": without effect on a CPU, where the memory of the host is that of the run; "
         "--offload-folder DIR moves it to a disk"
      << std::endl;
}

void check_offload_place(const MemoryConfig& memory, c10::Device device) {
  const OffloadConfig& config = memory.offload;
  const bool by_layers = offloads_layers(memory);
  if (by_layers || config.optimizer_cpu_offload)
    check_folder(config.offload_folder,
                 by_layers ? offloading_flag(memory) : "--optimizer-cpu-offload", device);
  if (config.offload_folder.empty() || !device.is_cpu()) return;
  const OffloadFile tried(OffloadFile::Options{.folder = config.offload_folder, .num_threads = 1});
}

std::unique_ptr<OffloadStore> open_offload_store(const OffloadStoreRequest& request,
                                                 c10::Device device, StartupWarnings& warnings,
                                                 std::ostream& out) {
  const std::string& folder = request.config.offload_folder;
  check_folder(folder, request.flag, device);
  if (device.is_cuda()) return make_host_offload_store(device);
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
