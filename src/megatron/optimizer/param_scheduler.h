// Schedules of learning rate and weight decay as functions of the samples trained on (Megatron's
// OptimizerParamScheduler). This header does not use torch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/base/json_fwd.h"
#include "megatron/config/scheduler_config.h"

namespace megatron {

struct Settings;
struct TrainingConfig;

/// The schedule as plain data. Steps are samples: iteration flags are multiplied by the global
/// batch size.
struct ParamSchedule {
  double init_lr = 0, max_lr = 0, min_lr = 0;
  std::optional<double> decoupled_max_lr = {};  ///< for the word embedding and the output layer;
                                                ///< nullopt: they use max_lr
  double decoupled_min_lr = 0;
  double lr_warmup_steps = 0;  ///< may be fractional with --lr-warmup-fraction
  std::int64_t lr_decay_steps = 0;
  LrDecayStyle lr_decay_style = LrDecayStyle::linear;
  std::int64_t wsd_decay_steps = 0;  ///< length of WSD's annealing, which ends at lr_decay_steps
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::exponential;
  double start_wd = 0, end_wd = 0;
  std::int64_t wd_incr_steps = 0;
  WeightDecayIncrStyle wd_incr_style = WeightDecayIncrStyle::constant;

  /// Returns the learning rate of the update that follows `num_steps` samples: warm-up up to and
  /// including lr_warmup_steps, then the decay, then min_lr.
  double lr(std::int64_t num_steps) const;
  /// Evaluates the same schedule between the decoupled rates; nullopt without them.
  std::optional<double> decoupled_lr(std::int64_t num_steps) const;
  /// Returns the weight decay of that update, from start_wd to end_wd over wd_incr_steps.
  double weight_decay(std::int64_t num_steps) const;
};

/// Builds the schedule of a run; `weight_decay` is --weight-decay. Throws a UserError that names
/// the flag which is missing or contradicts another.
ParamSchedule make_param_schedule(const SchedulerConfig& scheduler, const TrainingConfig& training,
                                  double weight_decay);

/// Builds the schedule of a run with the decoupled learning rates.
ParamSchedule make_param_schedule(const Settings& settings);

/// Says which side wins when a resumed run's schedule differs from its checkpoint's.
enum class ScheduleConflict {
  refuse,          ///< throws a UserError that lists every difference
  use_flags,       ///< --override-opt_param-scheduler
  use_checkpoint,  ///< --use-checkpoint-opt_param-scheduler
};

/// Returns what the two flags ask for; throws a UserError when both are given.
ScheduleConflict schedule_conflict(const SchedulerConfig& scheduler);

/// A schedule and the number of samples it has seen. A checkpoint stores both. Skipped updates do
/// not advance it.
class OptimizerParamScheduler {
 public:
  explicit OptimizerParamScheduler(ParamSchedule schedule) : schedule_(schedule) {}

  const ParamSchedule& schedule() const { return schedule_; }
  std::int64_t num_steps() const { return num_steps_; }
  void set_num_steps(std::int64_t num_steps) { num_steps_ = num_steps; }
  /// Advances the schedule by `samples`. Call it after each applied update.
  void step(std::int64_t samples) { num_steps_ += samples; }

  double lr() const { return schedule_.lr(num_steps_); }
  std::optional<double> decoupled_lr() const { return schedule_.decoupled_lr(num_steps_); }
  double weight_decay() const { return schedule_.weight_decay(num_steps_); }

  /// Returns the state under Megatron's keys (max_lr, min_lr, lr_warmup_steps, num_steps,
  /// lr_decay_style, …). It excludes the initial rate and WSD's values.
  Json state() const;
  /// Takes num_steps from `state` and resolves differences as `conflict` says. Errors name the
  /// checkpoint by `source`.
  void load_state_dict(const Json& state, ScheduleConflict conflict, const std::string& source);

 private:
  ParamSchedule schedule_;
  std::int64_t num_steps_ = 0;
};

}  // namespace megatron
