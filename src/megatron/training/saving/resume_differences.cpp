#include "megatron/training/saving/resume_differences.h"

#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/blend_schedule.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/data_config.h"
#include "megatron/config/data_phase.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

constexpr std::string_view kBreakingMark = "  ! ", kPlainMark = "    ";

std::string schedule_consequence(const Settings& settings, const std::string& there,
                                 const std::string& here) {
  const SchedulerConfig& scheduler = *settings.scheduler;
  if (!settings.checkpoint->load_optim) return here + " holds, by --no-load-optim";
  if (scheduler.override_opt_param_scheduler)
    return here + " holds, by --override-opt-param-scheduler";
  if (scheduler.use_checkpoint_opt_param_scheduler)
    return there + " holds, by --use-checkpoint-opt-param-scheduler";
  return "add --override-opt-param-scheduler for " + here +
         ", or --use-checkpoint-opt-param-scheduler for " + there;
}

/// How this run continues the data of the saved one.
struct Continuation {
  bool begins_phase = false;    ///< a phase of the data begins here
  bool moves_phase = false;     ///< the phase that goes on has other bounds than in the saved run
  bool keeps_mixtures = false;  ///< the steps of --blend-schedule up to here are the saved run's
};

/// What follows from a setting that differs from the checkpoint's.
struct Consequence {
  std::string text;
  bool is_breaking = false;
};

Consequence consequence_of(const Field& field, const Settings& settings, const std::string& there,
                           const std::string& here, const Continuation& continuation) {
  const ResumeMeaning& meaning = field.on_resume;
  if (meaning.kind == ResumeMeaning::Kind::schedule)
    return {schedule_consequence(settings, there, here)};
  if (continuation.begins_phase && meaning.phase_may_change)
    return {"holds from here on, where a phase of the data begins"};
  if (field.member == member_key(&DataConfig::blend_schedule) && continuation.keeps_mixtures)
    return {
        "the mixtures up to here are the same; data sets are shuffled anew if they now need "
        "another number of epochs"};
  if (field.member == member_key(&TrainingConfig::phase_transition_iterations) &&
      !continuation.moves_phase)
    return {};
  return {std::string(meaning.consequence), meaning.kind == ResumeMeaning::Kind::breaking};
}

/// Returns the steps of --blend-schedule that begin before `iteration`; nullopt if the schedule
/// cannot be read.
std::optional<std::vector<BlendStep>> steps_before(const DataConfig& data, std::int64_t iteration) {
  if (data.blend_schedule.empty()) return std::vector<BlendStep>();
  try {
    std::vector<BlendStep> steps = parse_blend_schedule(data.blend_schedule);
    std::erase_if(steps, [&](const BlendStep& step) { return step.iteration >= iteration; });
    return steps;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

/// Returns how `settings` continue the data of the saved run after `iteration`.
Continuation continuation_of(const Json& saved, const Settings& settings, std::int64_t iteration) {
  Settings there;
  read_saved_settings(saved, there);
  const auto mixtures = steps_before(*there.data, iteration);
  const DataPhase then = data_phase(*there.training, iteration),
                  now = data_phase(*settings.training, iteration);
  // No sample of a phase that begins here is consumed.
  const bool both_begin = then.begin == iteration && now.begin == iteration;
  return {.begins_phase = is_phase_transition(*settings.training, iteration),
          .moves_phase = !both_begin && (then.begin != now.begin || then.end != now.end),
          .keeps_mixtures = mixtures && mixtures == steps_before(*settings.data, iteration)};
}

/// Sets the length of the saved run `there` to this run's, in the unit of the saved run.
void copy_run_length(TrainingConfig& there, const TrainingConfig& here) {
  there.train_iters = here.train_iters;
  if (there.train_samples > 0)
    there.train_samples = here.train_samples > 0
                              ? here.train_samples
                              : NumMicrobatchesCalculator(here).samples_after(here.train_iters);
}

}  // namespace

void check_phase_batch_size(const Json& saved, const TrainingConfig& training) {
  if (training.phase_transition_iterations.empty()) return;
  Settings there;
  read_saved_settings(saved, there);
  const std::int64_t there_size = there.training->global_batch_size;
  if (there_size == 0 || there_size == training.global_batch_size) return;
  const std::string size = std::to_string(there_size);
  throw UserError({"--global-batch-size " + std::to_string(training.global_batch_size),
                   "the checkpoint was saved with " + size +
                       ", and with --phase-transition-iterations all phases of the data have one "
                       "batch size",
                   "use --global-batch-size " + size});
}

std::string settings_differences(const Json& saved, const Settings& settings,
                                 std::int64_t iteration) {
  const Continuation continuation = continuation_of(saved, settings, iteration);
  std::string lines;
  for (const Field& field : settings_table().set().fields) {
    const auto found = saved.find(field.name);
    if (found == saved.end() || !found->is_string() ||
        field.on_resume.kind == ResumeMeaning::Kind::none)
      continue;
    const std::string there = found->get<std::string>(), here = join_values(field.get(&settings));
    if (there == here) continue;
    const Consequence consequence = consequence_of(field, settings, there, here, continuation);
    lines += std::string(consequence.is_breaking ? kBreakingMark : kPlainMark) + field.flag() +
             ": " + there + " in the checkpoint, " + here + " now" +
             (consequence.text.empty() ? "" : ": " + consequence.text) + "\n";
  }
  return lines;
}

std::string breaking_differences(const std::string& differences) {
  std::istringstream lines(differences);
  std::string breaking;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kBreakingMark)) breaking += (breaking.empty() ? "" : "\n") + line;
  }
  return breaking;
}

Json saved_schedule_state(const Json& saved, const Settings& settings, std::int64_t num_steps) {
  Settings there;
  read_saved_settings(saved, there);
  const auto state_of = [&](const Settings& run) {
    OptimizerParamScheduler scheduler(make_param_schedule(run));
    scheduler.set_num_steps(num_steps);
    return scheduler.state();
  };
  Json here = state_of(settings);
  if (!there.scheduler->lr) return here;  // a checkpoint of another program does not say
  const Json as_saved = state_of(there);
  copy_run_length(*there.training, *settings.training);
  Json state = state_of(there);
  if (schedule_conflict(*settings.scheduler) == ScheduleConflict::refuse)
    for (auto& [key, value] : state.items())
      if (value != here.at(key)) value = as_saved.at(key);
  return state;
}

}  // namespace megatron
