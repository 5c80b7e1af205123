#include "megatron/optimizer/param_scheduler.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/field_values.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings_enums.h"

namespace megatron {
namespace {

/// Returns a factor that falls from 1 to 0 over half a cosine.
double cosine_decay(double ratio) { return 0.5 * (std::cos(std::numbers::pi * ratio) + 1.0); }

double anneal_coefficient(WsdDecayStyle style, double ratio) {
  switch (style) {
    case WsdDecayStyle::linear:
      return 1.0 - ratio;
    case WsdDecayStyle::cosine:
      return cosine_decay(ratio);
    case WsdDecayStyle::exponential:
      return 2.0 * std::pow(0.5, ratio) - 1.0;
    case WsdDecayStyle::minus_sqrt:
      return 1.0 - std::sqrt(ratio);
  }
  throw InternalError("unknown WSD decay style");
}

double decay_coefficient(const ParamSchedule& schedule, double steps) {
  const double ratio = (steps - schedule.lr_warmup_steps) /
                       (static_cast<double>(schedule.lr_decay_steps) - schedule.lr_warmup_steps);
  switch (schedule.lr_decay_style) {
    case LrDecayStyle::linear:
      return 1.0 - ratio;
    case LrDecayStyle::cosine:
      return cosine_decay(ratio);
    case LrDecayStyle::WSD: {
      const double start = static_cast<double>(schedule.lr_decay_steps - schedule.wsd_decay_steps);
      if (steps <= start) return 1.0;
      return anneal_coefficient(schedule.lr_wsd_decay_style,
                                (steps - start) / static_cast<double>(schedule.wsd_decay_steps));
    }
    default:
      throw InternalError("this learning rate decay style has no coefficient");
  }
}

template <class E>
E value_of(const JsonCursor& state, const std::string& key) {
  const std::string text = state[key].text();
  for (const auto& [name, value] : EnumNames<E>::value) {
    if (name == text) return value;
  }
  throw UserError({state.place() + ": unknown " + key, text,
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

void check_same_schedule(const Json& mine, const JsonCursor& theirs) {
  std::string differences;
  for (const Entry& entry : kEntries) {
    const Json& there = *theirs[entry.key];
    if (mine.at(entry.key) == there) continue;
    differences += std::string("\n  ") + entry.key + ": " + mine.at(entry.key).dump() + " here, " +
                   there.dump() + " in the checkpoint; set by " + entry.flags;
  }
  if (differences.empty()) return;
  throw UserError({theirs.place() +
                       ": the learning rate or weight decay schedule differs from this run's flags",
                   differences,
                   "give the same flags, or --override-opt_param-scheduler (these flags win) or "
                   "--use-checkpoint-opt_param-scheduler (the checkpoint wins)"});
}

void load_fields(ParamSchedule& schedule, const JsonCursor& state) {
  schedule.max_lr = state["max_lr"].number();
  schedule.min_lr = state["min_lr"].number();
  schedule.lr_warmup_steps = state["lr_warmup_steps"].number();
  schedule.lr_decay_steps = state["lr_decay_steps"].integer();
  schedule.lr_decay_style = value_of<LrDecayStyle>(state, "lr_decay_style");
  schedule.start_wd = state["start_wd"].number();
  schedule.end_wd = state["end_wd"].number();
  schedule.wd_incr_steps = state["wd_incr_steps"].integer();
  schedule.wd_incr_style = value_of<WeightDecayIncrStyle>(state, "wd_incr_style");
}

}  // namespace

double ParamSchedule::lr(std::int64_t num_steps) const {
  const double steps = static_cast<double>(num_steps);
  if (lr_warmup_steps > 0 && steps <= lr_warmup_steps)
    return init_lr + (max_lr - init_lr) * steps / lr_warmup_steps;
  if (lr_decay_style == LrDecayStyle::constant) return max_lr;
  if (num_steps > lr_decay_steps) return min_lr;
  if (lr_decay_style == LrDecayStyle::inverse_square_root) {
    return std::max(min_lr, max_lr * std::sqrt(std::max(lr_warmup_steps, 1.0)) /
                                std::sqrt(std::max(steps, 1.0)));
  }
  return min_lr + decay_coefficient(*this, steps) * (max_lr - min_lr);
}

std::optional<double> ParamSchedule::decoupled_lr(std::int64_t num_steps) const {
  if (!decoupled_max_lr) return std::nullopt;
  ParamSchedule decoupled = *this;
  decoupled.max_lr = *decoupled_max_lr;
  decoupled.min_lr = decoupled_min_lr;
  return decoupled.lr(num_steps);
}

double ParamSchedule::weight_decay(std::int64_t num_steps) const {
  if (num_steps > wd_incr_steps || wd_incr_style == WeightDecayIncrStyle::constant) return end_wd;
  const double ratio = static_cast<double>(num_steps) / static_cast<double>(wd_incr_steps);
  const double coefficient =
      wd_incr_style == WeightDecayIncrStyle::linear ? ratio : cosine_decay(1 - ratio);
  return start_wd + coefficient * (end_wd - start_wd);
}

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
  const JsonCursor saved(state, source);
  const std::int64_t num_steps = saved["num_steps"].integer();
  if (num_steps < 0)
    throw UserError({source + ": num_steps is negative", std::to_string(num_steps),
                     "the checkpoint is damaged"});
  if (conflict == ScheduleConflict::refuse) check_same_schedule(this->state(), saved);
  if (conflict == ScheduleConflict::use_checkpoint) load_fields(schedule_, saved);
  num_steps_ = num_steps;
}

}  // namespace megatron
