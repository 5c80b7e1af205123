// Saves and restores the scheduler's state, and resolves differences between a checkpoint's
// schedule and a resumed run's flags.
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/field_values.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings_enums.h"
#include "megatron/optimizer/param_scheduler.h"

namespace megatron {
namespace {

template <class E>
E value_of(const Json& state, const std::string& key, const std::string& source) {
  const std::string text = json_string(state, key, source);
  for (const auto& [name, value] : EnumNames<E>::value) {
    if (name == text) return value;
  }
  throw UserError({source + ": unknown " + key, text,
                   "the checkpoint was written by another program; resume with "
                   "--override-opt_param-scheduler"});
}

struct Entry {
  const char* key;
  const char* flags;
};

constexpr Entry kEntries[] = {
    {"max_lr", "--lr"},
    {"min_lr", "--min-lr"},
    {"lr_warmup_steps", "--lr-warmup-iters, -samples or -fraction (in samples)"},
    {"lr_decay_steps", "--lr-decay-iters or -samples (in samples; by default the whole run)"},
    {"lr_decay_style", "--lr-decay-style"},
    {"start_wd", "--weight-decay or --start-weight-decay"},
    {"end_wd", "--weight-decay or --end-weight-decay"},
    {"wd_incr_steps", "--train-iters or --train-samples (in samples)"},
    {"wd_incr_style", "--weight-decay-incr-style"}};

void check_same_schedule(const Json& mine, const Json& theirs, const std::string& source) {
  std::string differences;
  for (const Entry& entry : kEntries) {
    const Json& there = json_at(theirs, entry.key, source);
    if (mine.at(entry.key) == there) continue;
    differences += std::string("\n  ") + entry.key + ": " + mine.at(entry.key).dump() + " here, " +
                   there.dump() + " in the checkpoint; set by " + entry.flags;
  }
  if (differences.empty()) return;
  throw UserError(
      {source + ": the learning rate or weight decay schedule differs from this run's flags",
       differences,
       "give the same flags, or --override-opt_param-scheduler (these flags win) or "
       "--use-checkpoint-opt_param-scheduler (the checkpoint wins)"});
}

void load_fields(ParamSchedule& schedule, const Json& state, const std::string& source) {
  schedule.max_lr = json_double(state, "max_lr", source);
  schedule.min_lr = json_double(state, "min_lr", source);
  schedule.lr_warmup_steps = json_double(state, "lr_warmup_steps", source);
  schedule.lr_decay_steps = json_int(state, "lr_decay_steps", source);
  schedule.lr_decay_style = value_of<LrDecayStyle>(state, "lr_decay_style", source);
  schedule.start_wd = json_double(state, "start_wd", source);
  schedule.end_wd = json_double(state, "end_wd", source);
  schedule.wd_incr_steps = json_int(state, "wd_incr_steps", source);
  schedule.wd_incr_style = value_of<WeightDecayIncrStyle>(state, "wd_incr_style", source);
}

}  // namespace

ScheduleConflict schedule_conflict(const SchedulerConfig& scheduler) {
  if (scheduler.override_opt_param_scheduler && scheduler.use_checkpoint_opt_param_scheduler) {
    throw UserError({"--override-opt_param-scheduler excludes --use-checkpoint-opt_param-scheduler",
                     "", "give one of them"});
  }
  if (scheduler.override_opt_param_scheduler) return ScheduleConflict::use_flags;
  return scheduler.use_checkpoint_opt_param_scheduler ? ScheduleConflict::use_checkpoint
                                                      : ScheduleConflict::refuse;
}

Json OptimizerParamScheduler::state() const {
  return {{"max_lr", schedule_.max_lr},
          {"min_lr", schedule_.min_lr},
          {"lr_warmup_steps", schedule_.lr_warmup_steps},
          {"num_steps", num_steps_},
          {"lr_decay_style", scalar_text(schedule_.lr_decay_style)},
          {"lr_decay_steps", schedule_.lr_decay_steps},
          {"start_wd", schedule_.start_wd},
          {"end_wd", schedule_.end_wd},
          {"wd_incr_style", scalar_text(schedule_.wd_incr_style)},
          {"wd_incr_steps", schedule_.wd_incr_steps}};
}

void OptimizerParamScheduler::load_state_dict(const Json& state, ScheduleConflict conflict,
                                              const std::string& source) {
  const std::int64_t num_steps = json_int(state, "num_steps", source);
  if (num_steps < 0)
    throw UserError({source + ": num_steps is negative", std::to_string(num_steps),
                     "the checkpoint is damaged"});
  if (conflict == ScheduleConflict::refuse) check_same_schedule(this->state(), state, source);
  if (conflict == ScheduleConflict::use_checkpoint) load_fields(schedule_, state, source);
  num_steps_ = num_steps;
}

}  // namespace megatron
