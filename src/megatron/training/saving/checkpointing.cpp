#include "megatron/training/saving/checkpointing.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "megatron/base/format.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/local/local_checkpoint.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/run_folders.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/resilience/diagnosis/tensor_statistics.h"
#include "megatron/training/run/training_plan.h"
#include "megatron/training/saving/background_save.h"
#include "megatron/training/saving/resume_differences.h"

namespace megatron {
namespace {

/// Describes the first non-finite weight of this rank; "" when all are finite.
std::string first_non_finite(const ParamStore& store) {
  const auto is_finite = [](const ParamBucket& bucket) {
    return !bucket.offloads_values && count_non_finite(bucket.kept_value()) == 0;
  };
  if (std::ranges::all_of(store.buckets(), is_finite)) return {};
  for (const ParameterPiece& piece : store.kept_pieces()) {
    const at::Tensor flat = store.read_kept(piece);
    if (count_non_finite(flat) > 0)
      return piece.parameter->name() + " holds " + describe(tensor_statistics(flat));
  }
  return {};
}

/// Returns "<folder> holds weights that are not finite: <name of the first one> holds …" when a
/// weight of `store` is not finite on any rank, and "" otherwise. Collective over rank.world.
std::string non_finite_weights(const CheckpointSource& source, const ParamStore& store,
                               const Rank& rank) {
  const std::vector<std::string> found =
      all_gather_strings({rank.world, rank.device}, first_non_finite(store));
  const auto first =
      std::ranges::find_if(found, [](const std::string& text) { return !text.empty(); });
  return first == found.end()
             ? ""
             : source.folder.string() + " holds weights that are not finite: " + *first;
}

/// Returns this rank's coordinates as Megatron prints them.
std::string place(const Rank& rank) {
  const auto of = [](const Axis& axis) {
    return std::to_string(axis.rank + 1) + "/" + std::to_string(axis.size);
  };
  return "[ t " + of(rank.tp) + ", p " + of(rank.pp) + " ]";
}

std::string padded(std::int64_t iteration) {
  return format("%7lld", static_cast<long long>(iteration));
}

void print_timer(Timers& timers, std::string_view name, std::ostream& out) {
  const std::string times = timers.report(std::array<std::string_view, 1>{name});
  if (!times.empty()) out << times << std::endl;
}

void load_schedule(const TrainingPlan& plan, TrainingState& state, const Json& saved_settings) {
  const SchedulerConfig& config = *plan.settings.scheduler;
  const std::int64_t num_steps = state.progress.scheduler_num_steps;
  if (schedule_conflict(config) == ScheduleConflict::use_flags)
    return state.scheduler.set_num_steps(num_steps);
  const Json saved = saved_schedule_state(saved_settings, plan.settings, num_steps);
  state.scheduler.load_state_dict(saved, schedule_conflict(config), plan.source->folder.string());
}

/// Restores the progress of the run that saved the checkpoint.
void resume(const TrainingPlan& plan, TrainingState& state, StartupWarnings& warnings,
            std::ostream& out) {
  const Manifest& manifest = *plan.source->manifest;
  check_phase_batch_size(*manifest.settings, *plan.settings.training);
  const std::string differences =
      settings_differences(*manifest.settings, plan.settings, plan.source->iteration);
  if (!differences.empty()) out << " flags that differ from the checkpoint's:\n" << differences;
  if (const std::string grave = breaking_differences(differences); !grave.empty())
    warnings.keep(
        "this is no longer the run that was saved; flags that differ from the checkpoint's:\n" +
        grave);
  state.progress = manifest.progress;
  state.rerun_state = manifest.rerun_state;
  if (!state.optimizer) return;
  if (!plan.settings.checkpoint->load_optim) {
    warnings.keep(
        "the optimizer starts without state, and the learning rate's schedule from its beginning "
        "(--no-load-optim)");
    return;
  }
  if (const auto fresh = load_optimizer(*plan.source, *state.optimizer); !fresh.empty())
    warnings.add("the optimizer's state starts at zero for parameters that the saved run froze: " +
                     name_list(std::vector(fresh.begin(), fresh.end())),
                 out);
  load_schedule(plan, state, *manifest.settings);
}

/// Brings the shards of a local checkpoint that this host lacks to its folder.
void fetch_shards(const TrainingPlan& plan, TrainingState& state, std::ostream& out) {
  const FetchedShards fetched =
      fetch_local_shards(*plan.source, *state.weights, state.optimizer.get(), plan.rank.world);
  if (fetched.count > 0)
    out << "  copied " << fetched.count << " files ("
        << format("%.1f", 1e-6 * static_cast<double>(fetched.num_bytes))
        << " MB) of the checkpoint between hosts" << std::endl;
}

/// Returns the folder of `source` as the flags name it.
std::string root_of(const CheckpointSource& source, const CheckpointConfig& config) {
  const std::string non_persistent = non_persistent_folder(config, config.load);
  return !non_persistent.empty() && source.folder.parent_path() == non_persistent ? non_persistent
                                                                                  : config.load;
}

}  // namespace

void load_training_state(const TrainingPlan& plan, TrainingState& state, Timers& timers,
                         StartupWarnings& warnings, std::ostream& out) {
  const CheckpointSource& source = *plan.source;
  const bool is_resume = !source.is_release && !plan.settings.checkpoint->finetune;
  {
    const auto timing = timers.scope("load-checkpoint");
    const std::string root = root_of(source, *plan.settings.checkpoint);
    out << " loading " << (source.is_release ? "release " : "") << "checkpoint from " << root;
    if (!source.is_release) out << " at iteration " << source.iteration;
    out << std::endl;
    if (source.is_local) fetch_shards(plan, state, out);
    if (state.optimizer) {
      load_weights(source, *state.weights, state.optimizer->main_parameters());
    } else {
      load_weights(source, *state.weights);
    }
    state.non_finite_checkpoint = non_finite_weights(source, *state.weights, plan.rank);
    if (!state.non_finite_checkpoint.empty()) warnings.add(state.non_finite_checkpoint, out);
    if (is_resume) resume(plan, state, warnings, out);
    out << "  successfully loaded checkpoint from " << root << ' ' << place(plan.rank)
        << " at iteration " << state.progress.iteration << std::endl;
  }
  print_timer(timers, "load-checkpoint", out);
}

void print_saved(const TrainingPlan& plan, std::int64_t iteration,
                 const std::filesystem::path& root, std::ostream& out) {
  out << "  [" << current_time() << "] successfully saved checkpoint from iteration "
      << padded(iteration) << " to " << root.string() << ' ' << place(plan.rank) << std::endl;
}

void save_training_state(const TrainingPlan& plan, const TrainingState& state,
                         const SaveTarget& target, std::ostream& out) {
  const std::string root = target.folder.path().string();
  const std::string iteration = padded(state.progress.iteration);
  {
    const auto timing = target.timers.scope(target.timer);
    out << '[' << current_time() << "] saving checkpoint at iteration " << iteration << " to "
        << root << " in megatron format" << std::endl;
    const FolderLock* lock = nullptr;
    CollectiveSteps(plan.rank.world, plan.rank.device).run_on_all_ranks([&] {
      lock = target.folder.lock(std::cerr);  // which may fail on a leader alone
      return std::string();
    });
    const SaveRequest request{
        .model = &*plan.settings.model,
        .family = plan.family->name,
        .settings = &plan.settings,
        .weights = state.weights.get(),
        .optimizer = plan.settings.checkpoint->save_optim ? state.optimizer.get() : nullptr,
        .rerun_state = state.rerun_state,
        .progress = state.progress,
        .origin = plan.source ? &*plan.source : nullptr,
        .tokenizer = &plan.tokenizer_files,
        .lock = lock,
        .files = &target.folder.files(),
        .world = plan.rank.world,
        .before_commit = target.before_commit,
        .placement = target.placement,
        .last = &target.folder.last()};
    if (target.background != nullptr) {
      target.background->start(root, request);
      out << "  scheduled an async checkpoint save at iteration " << iteration << " to " << root
          << std::endl;
    } else {
      save_checkpoint(root, request);
      print_saved(plan, state.progress.iteration, root, out);
    }
  }
  print_timer(target.timers, target.timer, out);
}

}  // namespace megatron
