// Implements `megatron pretrain`: trains a model with Megatron-LM's flags, as one rank of a run.
#include <malloc.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <vector>

#include "megatron/base/cpu_affinity.h"
#include "megatron/cli/engine/distributed_context.h"
#include "megatron/cli/engine/engine.h"
#include "megatron/cli/published_weights.h"
#include "megatron/config/launch_environment.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/run_folders.h"
#include "megatron/config/run_settings.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/control/rank_link.h"
#include "megatron/parallel/world.h"
#include "megatron/params/param_store.h"
#include "megatron/training/loop/kept_model.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/observability/tensor_memory.h"
#include "megatron/training/resilience/non_finite.h"

namespace megatron {
namespace {

/// Runs one start of a run, and again for every start that `megatron launch` keeps this process
/// for, in the environment of that start. `start` returns the exit code of the rank; one other than
/// 0 and 2 makes the process offer itself to the launcher. Returns the last exit code.
int run_starts(const std::function<int()>& start) {
  const std::optional<int> link = find_launch_environment().process_link;
  const std::vector<int> cpus = allowed_cpu_numbers();  // before the rank is pinned to its share
  while (true) {
    const int code = start();
    if (!link || code == 0 || code == 2) return code;
    std::cout.flush();
    std::fflush(nullptr);
    ::malloc_trim(0);               // the next start may get its memory from other arenas
    std::signal(SIGUSR2, SIG_IGN);  // until the next start can answer
    const auto variables = offer_process(*link, code);
    if (!variables) return code;
    allow_cpus(cpus);  // they are divided again
    for (const auto& [name, value] : *variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
}

/// Returns the memory that set_up() needed to the system before the first step.
void release_unused_memory() {
  malloc_trim(0);
  empty_tensor_cache();
}

/// Publishes the largest weight that the rank keeps in float32, for `megatron chaos`.
void publish_largest_weight(const ParamStore& store) {
  const char* folder = std::getenv(kPublishedWeightsVariable);
  if (folder == nullptr || !store.device().is_cpu()) return;
  PublishedWeights largest;
  for (const Parameter* parameter : store.parameters()) {
    if (!parameter->is_trained()) continue;
    const at::Tensor& value = parameter->precise_value();
    const auto count = static_cast<std::uint64_t>(value.numel());
    if (value.scalar_type() != at::kFloat || !value.is_contiguous() || count <= largest.count)
      continue;
    largest = {reinterpret_cast<std::uintptr_t>(value.const_data_ptr()), count};
  }
  publish_weights(folder, largest);
}

int train_as(World& world, const RunConfig& run, const RankContext& rank) {
  const bool is_main_rank = world.environment().rank == 0;
  std::ostream silence(nullptr);
  std::ostream& out = is_main_rank ? std::cout : silence;
  Trainer trainer = [&] {
    const SectionScope section(rank.communicators, "setting up the run");
    return set_up(run, out, rank);
  }();
  release_unused_memory();
  publish_largest_weight(*trainer.state.weights);
  try {
    return train(trainer, out);
  } catch (const NonFiniteError& error) {
    std::cout.flush();
    if (is_main_rank) std::cerr << "megatron pretrain: error: " << error.what() << std::endl;
    return 1;
  } catch (...) {
    if (rank.kept != nullptr) rank.kept->keep(trainer);
    throw;
  }
}

int pretrain_as(World& world, std::span<const std::string> args, KeptModel& kept,
                const ModelFamilies& families) {
  const RunConfig run = read_run(args, world.environment().world_size, families.names());
  const Settings& settings = run.options.settings;
  if (settings.parallel->inprocess_restart && !world.environment().root_cause_pipe)
    throw UserError({"--inprocess-restart", "is possible only under `megatron launch`",
                     "start the run with it, or leave the flag out"});
  DistributedContext joined(world, *settings.parallel,
                            {.flags = flags_of(settings_table().set(), &settings),
                             .hang_reports = hang_report_folder(settings),
                             .slots = kept.slots()});
  RankContext rank = joined.in_world();
  rank.kept = &kept;
  rank.families = &families;
  return train_as(world, run, rank);
}

}  // namespace

int run_pretrain(std::span<const std::string> args, const ModelFamilies& families) {
  keep_freed_memory();
  KeptModel kept;
  return run_starts([&] {
    return run_rank("pretrain",
                    [&](World& world) { return pretrain_as(world, args, kept, families); });
  });
}

}  // namespace megatron
