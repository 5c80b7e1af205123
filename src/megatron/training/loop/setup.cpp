#include "megatron/training/loop/setup.h"

#include <ATen/Parallel.h>

#include <array>
#include <ostream>
#include <utility>

#include "megatron/config/print_config.h"
#include "megatron/models/model_cost.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/planner/run_costs.h"
#include "megatron/training/feeding/data_setup.h"
#include "megatron/training/loop/build_state.h"
#include "megatron/training/loop/determinism.h"
#include "megatron/training/loop/open_device.h"
#include "megatron/training/loop/out_of_memory.h"
#include "megatron/training/loop/resolve_run.h"
#include "megatron/training/observability/startup_report.h"
#include "megatron/training/resilience/reruns/tracker_file.h"

namespace megatron {
namespace {

/// Opens the device and binds this rank's threads to its CPUs. Returns `world` with the device.
RankContext open_machine(const Settings& settings, RankContext world) {
  set_determinism(settings.training);
  if (!world.device) world.device = open_device(settings.parallel.device);
  at::set_num_threads(bind_to_cpus(world.cpus, /*pins=*/world.device->device.is_cpu()));
  return world;
}

/// Returns the run's timers, whose reports gather the times of all ranks.
Timers make_timers(const LoggerConfig& logger, const Rank& rank) {
  Timers timers(static_cast<int>(logger.timing_log_level),
                timer_statistic(logger.timing_log_option));
  timers.set_gather([axis = rank.world, device = rank.device](const std::vector<double>& mine) {
    return all_gather_numbers({axis, device}, mine, "timers");
  });
  return timers;
}

void print_run(const TrainingPlan& plan, const OpenedDevice& device, std::ostream& out) {
  const Settings& settings = plan.settings;
  out << world_line(plan.rank) << '\n'
      << device_line(device) << '\n'
      << argument_dump(settings)
      << padded_vocab_line(settings.model.vocab_size, padded_vocab_size(settings)) << std::endl;
}

void print_theoretical_memory(const TrainingPlan& plan, const StepBatch& batch, std::ostream& out) {
  out << theoretical_memory_report(
             plan.dimensions, run_memory_layout(plan.settings, plan.rank, batch.num_microbatches),
             /*verbose=*/true)
      << std::flush;
}

/// Builds the state and the data of a trainer that has a plan.
void build(Trainer& trainer, const Tokenizer& tokenizer, std::ostream& out) try {
  auto& [plan, state, services] = trainer;
  {
    const auto timing = services.timers.scope("model-and-optimizer-setup");
    build_state(plan, state, services, out);
  }
  print_theoretical_memory(plan, state.batch, out);
  const auto timing = services.timers.scope("train/valid/test-data-iterators-setup");
  services.data =
      build_train_valid_test_data(plan, state.progress.consumed_train_samples, tokenizer, out);
} catch (...) {
  rethrow_with_memory_report(trainer.plan, trainer.state);
}

}  // namespace

Trainer set_up(const RunConfig& run, std::ostream& out, const RankContext& world) {
  const RankContext here = open_machine(run.options.settings, world);
  TrainingServices services{.communicators = world.communicators};
  auto [plan, tokenizer] = resolve_run(run, here, services.warnings, out);
  services.folders =
      open_save_folders(plan.settings.checkpoint, plan.source, plan.rank, services.warnings, out);
  skip_rejected_iterations(plan.settings, out);
  services.timers = make_timers(plan.settings.logger, plan.rank);
  print_run(plan, *here.device, out);
  Trainer trainer{.plan = std::move(plan), .state = {}, .services = std::move(services)};
  build(trainer, *tokenizer, out);
  out << trainer.services.timers.report(std::array<std::string_view, 2>{
             "model-and-optimizer-setup", "train/valid/test-data-iterators-setup"})
      << std::endl;
  return trainer;
}

}  // namespace megatron
