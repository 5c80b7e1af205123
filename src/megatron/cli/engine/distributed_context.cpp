#include "megatron/cli/engine/distributed_context.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "megatron/base/files.h"
#include "megatron/config/parallel_config.h"
#include "megatron/parallel/cuda_plugin.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

std::chrono::milliseconds timeout_of(const ParallelConfig& parallel) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(parallel.distributed_timeout_minutes * 60'000));
}

std::chrono::milliseconds warning_time(const ParallelConfig& parallel) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(parallel.hang_warning_seconds * 1000));
}

CpuTransport cpu_transport(const ParallelConfig& parallel) {
  if (parallel.cpu_transport == "gloo") return CpuTransport::gloo;
  return parallel.cpu_transport == "auto" ? CpuTransport::automatic : CpuTransport::shared_memory;
}

std::unique_ptr<Communicators> communicators_of(const World& world, const ParallelConfig& parallel,
                                                const c10::Device& device,
                                                const DistributedOptions& distributed) {
  ProcessOptions options = world.process_options();
  options.timeout = timeout_of(parallel);
  options.cpu_transport = cpu_transport(parallel);
  options.device = device;
  options.hang_reports = {.folder = distributed.hang_reports, .warn_after = warning_time(parallel)};
  if (distributed.slots) options.slots = distributed.slots;
  if (device.is_cuda()) options.cuda = open_cuda_plugin(cuda_plugin_path()).plugin;
  return world.make_communicators(options);
}

OpenedDevice join(World& world, const ParallelConfig& parallel, const SettingsText& flags) {
  world.join({.timeout = timeout_of(parallel), .settings = flags});
  return open_device(parallel.device, world.environment().local_rank);
}

}  // namespace

SettingsText flags_of(const FieldSet& fields, const void* object) {
  SettingsText flags;
  for (const Field& field : fields.fields)
    flags.emplace_back(field.flag(), join_values(field.get(object)));
  return flags;
}

DistributedContext::DistributedContext(World& world, const ParallelConfig& parallel,
                                       const DistributedOptions& options)
    : world_(world),
      device_(join(world, parallel, options.flags)),
      communicators_(communicators_of(world, parallel, device_.device, options)) {
  if (!communicators_) {
    auto status = std::make_shared<HostStatus>(SharedMemory::for_threads(HostStatus::bytes(1)), 1);
    status->enter(0);
    world_.set_failure_notice(status);
    own_watch_.emplace(std::move(status), HangWatchOptions{.folder = options.hang_reports});
    return;
  }
  world_.set_failure_notice(communicators_->failure_notice());
  world_.on_failure([communicators = communicators_.get()](const std::string& reason) {
    communicators->abort(reason);
  });
}

DistributedContext::~DistributedContext() { world_.on_failure(nullptr); }

RankContext DistributedContext::in_world() {
  const auto set_deadline = [this](const Deadline& deadline) {
    communicators_ ? communicators_->set_deadline(deadline) : own_watch_->set_deadline(deadline);
  };
  const RunHosts& hosts = world_.hosts();
  const auto rank = static_cast<std::size_t>(world_.environment().rank);
  return {.communicators = communicators_.get(),
          .set_deadline = set_deadline,
          .cpus = world_.environment().world_size > 1 ? hosts.cpus : CpuPartition{},
          .ranks_on_host = std::ranges::count(hosts.host_of_rank, hosts.host_of_rank.at(rank)),
          .device = device_};
}

Rank DistributedContext::place(const ParallelConfig& parallel) const {
  const Mesh mesh(mesh_sizes(parallel), world_.environment().world_size);
  const RankOptions options{.device = device_.device, .infers = true};
  return communicators_ ? make_rank(mesh, *communicators_, options) : make_rank(mesh, 0, options);
}

}  // namespace megatron
