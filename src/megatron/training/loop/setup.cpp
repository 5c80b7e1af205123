#include "megatron/training/loop/setup.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include <array>
#include <cstdlib>
#include <ostream>
#include <string>
#include <utility>

#include "kernels/cpu/cpu_features.h"
#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_phase.h"
#include "megatron/config/fault_tolerance_config.h"
#include "megatron/config/logger_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/print_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/model_cost.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/run_costs.h"
#include "megatron/training/feeding/training_data.h"
#include "megatron/training/loop/kept_model.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/observability/out_of_memory.h"
#include "megatron/training/resilience/reruns/tracker_file.h"
#include "megatron/training/run/open_device.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {
namespace {

/// Sets the environment variable; UserError when it has a value that does not begin with `wanted`.
void require_variable(const char* name, const std::string& wanted, const char* why) {
  const char* given = std::getenv(name);
  if (given == nullptr) {
    setenv(name, wanted.c_str(), 0);
    return;
  }
  if (std::string(given).starts_with(wanted)) return;
  throw UserError({std::string("--deterministic-mode: the environment has ") + name + "=" + given,
                   why, std::string("unset it, or set ") + name + "=" + wanted});
}

/// Enables the MKL mode whose summation order does not depend on the number of threads (only Intel
/// CPUs need it).
void fix_mkl() {
  const char* given = std::getenv("MKL_CBWR");
  if (given != nullptr && std::string(given).find("STRICT") == std::string::npos) {
    throw UserError({std::string("--deterministic-mode: the environment has MKL_CBWR=") + given,
                     "without STRICT, GEMM results depend on the number of threads",
                     "unset it, or add ,STRICT"});
  }
  setenv("MKL_CBWR", kernels::cpu_has_avx512() ? "AVX512,STRICT" : "AVX2,STRICT", 0);
}

/// Configures LibTorch and the math libraries; call it before the first operation. UserError when
/// an environment variable contradicts deterministic mode.
void set_determinism(const TrainingConfig& config) {
  at::globalContext().setDeterministicAlgorithms(config.deterministic_mode, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
  if (!config.deterministic_mode) return;
  fix_mkl();
  require_variable("CUBLAS_WORKSPACE_CONFIG", ":4096:8",
                   "cuBLAS then chooses its order of additions as it goes");
}

/// Opens the device and binds this rank's threads to its CPUs. Returns `world` with the device.
RankContext open_machine(const Settings& settings, RankContext world) {
  set_determinism(*settings.training);
  if (!world.device) world.device = open_device(settings.parallel->device);
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
      << padded_vocab_line(settings.model->vocab_size, padded_vocab_size(settings)) << std::endl;
}

/// Begins to watch the sections of the run, of which setup is the first.
std::unique_ptr<SectionWatch> watch_sections(const Settings& settings, const RankContext& rank,
                                             StartupWarnings& warnings, std::ostream& out) {
  auto sections =
      std::make_unique<SectionWatch>(SectionWatchOptions{.config = *settings.fault_tolerance,
                                                         .save = settings.checkpoint->save,
                                                         .set_deadline = rank.set_deadline});
  sections->begin_setup();
  if (!sections->is_enabled()) return sections;
  out << "section timeouts: " << sections->limits().text() << std::endl;
  if (!sections->file_problem().empty())
    warnings.add("the section timeouts are calculated anew: " + sections->file_problem(), out);
  if (!sections->limits().has_any() && !settings.fault_tolerance->calc_ft_timeouts)
    warnings.add(
        "--enable-ft-package has no timeout to apply: give --ft-rank-section-timeouts or "
        "--calc-ft-timeouts",
        out);
  return sections;
}

void print_theoretical_memory(const TrainingPlan& plan, const StepBatch& batch, std::ostream& out) {
  out << theoretical_memory_report(
             plan.dimensions, run_memory_layout(plan.settings, plan.rank, batch.num_microbatches),
             /*verbose=*/true)
      << std::flush;
}

/// Prints the phase of the data that the run trains on. Warns when nothing is saved at its end.
void announce_phase(const Settings& settings, std::int64_t iteration, StartupWarnings& warnings,
                    std::ostream& out) {
  const DataPhase phase = data_phase(*settings.training, iteration);
  if (phase.count == 1 || settings.training->skip_train) return;
  out << phase_line(phase) << std::endl;
  if (phase.index + 1 < phase.count && settings.checkpoint->save.empty())
    warnings.add("the run stops at iteration " + std::to_string(phase.end) +
                     ", where a phase of the data ends (--phase-transition-iterations), and saves "
                     "nothing: add --save DIR",
                 out);
}

/// Builds the state and the data of a trainer that has a plan. `external` makes the datasets of
/// --dataloader-type external.
void build(Trainer& trainer, const std::shared_ptr<const Tokenizer>& tokenizer,
           const DatasetBuilder& external, std::ostream& out) try {
  const TrainingPlan& plan = trainer.plan;
  TrainingState& state = trainer.state;
  {
    const auto timing = trainer.timers.scope("model-and-optimizer-setup");
    build_state(plan, state,
                {.communicators = trainer.communicators,
                 .timers = trainer.timers,
                 .warnings = trainer.warnings},
                out);
  }
  print_theoretical_memory(plan, state.batch, out);
  const auto timing = trainer.timers.scope("train/valid/test-data-iterators-setup");
  announce_phase(plan.settings, state.progress.iteration, trainer.warnings, out);
  trainer.data = build_train_valid_test_data(plan, state.progress, {tokenizer, external}, out);
} catch (...) {
  rethrow_with_memory_report(trainer.plan, trainer.state);
}

}  // namespace

Trainer set_up(const RunConfig& run, std::ostream& out, const RankContext& world) {
  const Settings& given = run.options.settings;
  const RankContext here = open_machine(given, world);
  const RunClock clock;
  StartupWarnings warnings;
  std::unique_ptr<SectionWatch> sections = watch_sections(given, world, warnings, out);
  const HostMemory memory_before_model = given.logger->log_memory ? host_memory() : HostMemory{};
  auto [plan, tokenizer] = resolve_run(run, here, warnings, out);
  if (plan.source && !plan.source->is_local) sections->record_load();
  SaveFolders folders =
      open_save_folders(*plan.settings.checkpoint, plan.source, plan.rank, warnings, out);
  skip_rejected_iterations(plan.settings, plan.rank, out);
  Timers timers = make_timers(*plan.settings.logger, plan.rank);
  print_run(plan, *here.device, out);
  TrainingState state{.model = world.kept != nullptr ? world.kept->take(plan) : nullptr};
  Trainer trainer{.plan = std::move(plan),
                  .state = std::move(state),
                  .communicators = world.communicators,
                  .clock = clock,
                  .timers = std::move(timers),
                  .sections = std::move(sections),
                  .warnings = std::move(warnings),
                  .folders = std::move(folders),
                  .memory_before_model = memory_before_model};
  build(trainer, tokenizer, world.datasets, out);
  const std::int64_t num_microbatches = trainer.state.batch.num_microbatches;
  if (trainer.sections->set_load({trainer.plan.rank.world.size, num_microbatches}))
    out << "section timeouts: those of ft_state.json were calculated with another number of ranks "
           "or microbatches, and are calculated anew"
        << std::endl;
  out << trainer.timers.report(std::array<std::string_view, 2>{
             "model-and-optimizer-setup", "train/valid/test-data-iterators-setup"})
      << std::endl;
  return trainer;
}

}  // namespace megatron
