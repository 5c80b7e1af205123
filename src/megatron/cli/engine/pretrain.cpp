// `megatron pretrain`: trains a model with Megatron-LM's flags, as one rank of a run.
#include <chrono>
#include <iostream>

#include "megatron/cli/engine/engine.h"
#include "megatron/config/run_settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/parallel/cuda_plugin.h"
#include "megatron/parallel/world.h"
#include "megatron/training/non_finite.h"
#include "megatron/training/setup.h"
#include "megatron/training/train_loop.h"

namespace megatron {
namespace {

std::chrono::milliseconds timeout_of(const ParallelConfig& parallel) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(parallel.distributed_timeout_minutes * 60'000));
}

/// What every rank must have been started with.
SettingsText flags_of(const Settings& settings) {
  SettingsText flags;
  for (const Field& field : settings_table().set().fields) flags.emplace_back(field.flag(), join_values(field.get(&settings)));
  return flags;
}

CpuTransport cpu_transport(const ParallelConfig& parallel) {
  if (parallel.cpu_transport == "gloo") return CpuTransport::gloo;
  return parallel.cpu_transport == "auto" ? CpuTransport::automatic : CpuTransport::shared_memory;
}

std::unique_ptr<Communicators> communicators_of(const World& world, const ParallelConfig& parallel, const c10::Device& device) {
  ProcessOptions options = world.process_options();
  options.timeout = timeout_of(parallel);
  options.cpu_transport = cpu_transport(parallel);
  options.device = device;
  if (device.is_cuda()) options.cuda = open_cuda_plugin(cuda_plugin_path()).plugin;
  return world.make_communicators(options);
}

int train_as(World& world, const Run& run, const RankInWorld& rank) {
  const bool speaks = world.environment().rank == 0;
  std::ostream silence(nullptr);
  std::ostream& out = speaks ? std::cout : silence;
  Trainer trainer = set_up(run, out, rank);
  try {
    return train(trainer, out);
  } catch (const NonFiniteError& error) {
    std::cout.flush();
    if (speaks) std::cerr << "megatron pretrain: error: " << error.what() << std::endl;
    return 1;
  }
}

/// Lets a peer's failure end what this rank waits for, for as long as it lives.
class FailureLink {
 public:
  FailureLink(World& world, Communicators* communicators) : world_(world) {
    if (communicators == nullptr) return;
    world_.on_failure([communicators](const std::string& reason) { communicators->abort(reason); });
  }
  FailureLink(const FailureLink&) = delete;
  FailureLink& operator=(const FailureLink&) = delete;
  ~FailureLink() { world_.on_failure(nullptr); }

 private:
  World& world_;
};

int pretrain_as(World& world, std::span<const std::string> args) {
  const LaunchEnvironment& environment = world.environment();
  const Run run = read_run(args, environment.world_size);
  const ParallelConfig& parallel = run.options.settings.parallel;
  world.join({.timeout = timeout_of(parallel), .settings = flags_of(run.options.settings)});
  const OpenedDevice device = open_device(parallel.device, environment.local_rank);
  const std::unique_ptr<Communicators> communicators = communicators_of(world, parallel, device.device);
  const FailureLink link(world, communicators.get());
  return train_as(world, run,
                  {.communicators = communicators.get(),
                   .local_world_size = environment.world_size > 1 ? world.hosts().ranks_sharing_processors : 1,
                   .device = device});
}

}  // namespace

int run_pretrain(std::span<const std::string> args) {
  return run_rank("pretrain", [&](World& world) { return pretrain_as(world, args); });
}

}  // namespace megatron
