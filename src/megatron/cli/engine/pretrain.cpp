// Implements `megatron pretrain`: trains a model with Megatron-LM's flags, as one rank of a run.
#include <iostream>

#include "megatron/cli/engine/distributed_context.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/config/run_settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/parallel/world.h"
#include "megatron/training/loop/setup.h"
#include "megatron/training/loop/train_loop.h"
#include "megatron/training/resilience/non_finite.h"

namespace megatron {
namespace {

int train_as(World& world, const RunConfig& run, const RankContext& rank) {
  const bool is_main_rank = world.environment().rank == 0;
  std::ostream silence(nullptr);
  std::ostream& out = is_main_rank ? std::cout : silence;
  Trainer trainer = set_up(run, out, rank);
  try {
    return train(trainer, out);
  } catch (const NonFiniteError& error) {
    std::cout.flush();
    if (is_main_rank) std::cerr << "megatron pretrain: error: " << error.what() << std::endl;
    return 1;
  }
}

int pretrain_as(World& world, std::span<const std::string> args) {
  const RunConfig run = read_run(args, world.environment().world_size);
  const Settings& settings = run.options.settings;
  const DistributedContext joined(world, settings.parallel,
                                  flags_of(settings_table().set(), &settings));
  return train_as(world, run, joined.in_world());
}

}  // namespace

int run_pretrain(std::span<const std::string> args) {
  return run_rank("pretrain", [&](World& world) { return pretrain_as(world, args); });
}

}  // namespace megatron
