// Opens the place of what a run offloads: a file of --offload-folder, or the memory of a GPU's
// host.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>

#include "megatron/ops/offload_store.h"
#include "megatron/training/run/startup_warnings.h"

namespace megatron {

struct MemoryConfig;
struct OffloadConfig;

struct OffloadStoreRequest {
  const OffloadConfig& config;
  std::string flag;  ///< the flag that offloads, for errors
  /// Bytes of a file that may wait to be written.
  std::uint64_t max_bytes_in_flight = std::uint64_t{256} << 20;
};

/// Returns the flag by which a run offloads activations or weights, for errors.
std::string offloading_flag(const MemoryConfig& memory);

/// Lets what flags of Megatron-LM offload stay where it is on a CPU without --offload-folder, with
/// a note: the memory of the host is that of the run.
void leave_in_host_memory(MemoryConfig& memory, c10::Device device, std::ostream& out);

/// Checks the place of what a run offloads before anything is built. Throws as
/// open_offload_store() does.
void check_offload_place(const MemoryConfig& memory, c10::Device device);

/// Throws a UserError if a CPU has no folder, a GPU has one, or the folder cannot be used. Warns if
/// the folder is itself in memory.
std::unique_ptr<OffloadStore> open_offload_store(const OffloadStoreRequest& request,
                                                 c10::Device device, StartupWarnings& warnings,
                                                 std::ostream& out);

}  // namespace megatron
