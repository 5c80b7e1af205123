// Communicators between processes that met in a c10d store. Every group picks its own way: shared
// memory where all its ranks are on one host, shared memory inside hosts with Gloo between them
// where hosts hold equally many, Gloo alone otherwise; NCCL for tensors on GPUs.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "megatron/parallel/communicators.h"

namespace c10d {
class Store;
}

namespace megatron {

struct CudaPlugin;

enum class CpuTransport : std::uint8_t { automatic, shared_memory, gloo };

struct ProcessOptions {
  std::int64_t rank = 0;  ///< of the world
  std::int64_t world_size = 1;
  std::string host =
      {};  ///< ranks with different words never share memory; empty: this machine's boot identity
  std::string address =
      {};  ///< of this host as others reach it: where Gloo listens; empty: 127.0.0.1
  std::chrono::milliseconds timeout{600'000};  ///< of every operation
  CpuTransport cpu_transport = CpuTransport::automatic;
  c10::Device device{c10::kCPU};
  const CudaPlugin* cuda = nullptr;  ///< for groups on a GPU
};

/// Collective over the world. The store's keys must be this start's own (a prefix per restart).
/// Throws UserError when shared memory is asked for and out of reach, CommError when ranks are
/// missing.
std::unique_ptr<Communicators> make_process_communicators(
    const c10::intrusive_ptr<c10d::Store>& store, const ProcessOptions& options);

}  // namespace megatron
