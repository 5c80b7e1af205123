// Communicators between processes that share a run's store. Each group picks its CPU transport:
// shared memory when all its ranks are on one host; shared memory within hosts and Gloo between
// them when every host holds equally many; Gloo otherwise. NCCL carries tensors on GPUs.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "megatron/control/run_store.h"
#include "megatron/parallel/comm_slots.h"
#include "megatron/parallel/communicators.h"

namespace megatron {

struct CudaPlugin;

/// What a rank says when others do not arrive.
struct HangReportOptions {
  std::filesystem::path folder = {};             ///< Of dumps; empty: none are written.
  std::chrono::milliseconds warn_after{10'000};  ///< Length of a wait; 0: never.
};

enum class CpuTransport : std::uint8_t { automatic, shared_memory, gloo };

struct ProcessOptions {
  std::int64_t rank = 0;  ///< Rank in the world.
  std::int64_t world_size = 1;
  /// Identity of this host; ranks with different values never share memory. Empty: the boot
  /// identity of this machine.
  std::string host = {};
  /// Address of this host as others reach it, where Gloo listens. Empty: 127.0.0.1.
  std::string address = {};
  std::chrono::milliseconds timeout{600'000};  ///< Limit of every operation.
  CpuTransport cpu_transport = CpuTransport::automatic;
  c10::Device device{c10::kCPU};
  const CudaPlugin* cuda = nullptr;  ///< Required for groups on a GPU.
  std::string start = {};            ///< Identity of this start of the run, equal on all ranks.
  HangReportOptions hang_reports = {};
  /// The groups of this process, which are disconnected when the communicators end. Never null.
  std::shared_ptr<CommSlots> slots = std::make_shared<CommSlots>();
};

/// Collective over the world. The keys of `store` must be unique to this start of the run (use a
/// prefix per restart). Throws UserError when shared memory is demanded but unreachable, and
/// CommError when ranks are missing.
std::unique_ptr<Communicators> make_process_communicators(const RunStore& store,
                                                          const ProcessOptions& options);

}  // namespace megatron
