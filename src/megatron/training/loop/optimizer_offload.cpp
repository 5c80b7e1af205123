#include "megatron/training/loop/optimizer_offload.h"

#include "megatron/base/error.h"
#include "megatron/base/offload_file.h"

namespace megatron {
namespace {

/// Windows that wait to be written beside those that are updated and read.
constexpr std::uint64_t kBytesInFlight = std::uint64_t{64} << 20;

std::shared_ptr<OffloadStore> make_store(const OffloadConfig& config, c10::Device device,
                                         StartupWarnings& warnings, std::ostream& out) {
  if (config.offload_folder.empty() || !device.is_cpu()) {
    if (!device.is_cpu()) return make_host_offload_store(device);
    throw UserError({"--optimizer-cpu-offload",
                     "on a CPU the state is already in the memory of the host",
                     "name a folder on a disk with --offload-folder"});
  }
  auto file = std::make_shared<OffloadFile>(
      OffloadFile::Options{.folder = config.offload_folder, .max_bytes_in_flight = kBytesInFlight});
  if (file->is_in_memory())
    warnings.add("--offload-folder " + config.offload_folder +
                     " is a file system in memory: what is offloaded there saves none",
                 out);
  return make_file_offload_store(std::move(file));
}

}  // namespace

StateOffloadOptions optimizer_offload(const TrainingPlan& plan, StartupWarnings& warnings,
                                      std::ostream& out) {
  const OffloadConfig& config = plan.settings.memory.offload;
  if (!config.optimizer_cpu_offload) return {};
  return {.store = make_store(config, plan.rank.device, warnings, out),
          .fraction = config.optimizer_offload_fraction,
          .overlaps_copies = config.overlap_cpu_optimizer_d2h_h2d};
}

}  // namespace megatron
