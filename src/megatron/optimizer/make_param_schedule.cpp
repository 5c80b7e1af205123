// Converts flags to a schedule in samples, with Megatron-LM's defaults and cross-field rules.
#include <algorithm>
#include <string>

#include "megatron/base/error.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/optimizer/param_scheduler.h"

namespace megatron {
namespace {

void require(bool condition, const std::string& what, const std::string& got,
             const std::string& fix) {
  if (!condition) throw UserError({what, got, fix});
}

void set_steps_from_iterations(ParamSchedule& schedule, const SchedulerConfig& config,
                               const TrainingConfig& training) {
  require(training.global_batch_size > 0 || !training.step_batch_size_schedule.empty(),
          "--global-batch-size must be positive to count a schedule in samples",
          std::to_string(training.global_batch_size), "give --global-batch-size");
  const NumMicrobatchesCalculator batches(training);
  require(!config.lr_decay_samples && config.lr_warmup_samples == 0,
          "--lr-decay-samples and --lr-warmup-samples need --train-samples", "",
          "use --lr-decay-iters and --lr-warmup-iters with --train-iters");
  const std::int64_t decay_iters = config.lr_decay_iters.value_or(training.train_iters);
  const std::int64_t anneal_start =
      std::max<std::int64_t>(0, decay_iters - config.lr_wsd_decay_iters.value_or(0));
  schedule.lr_decay_steps = batches.samples_after(decay_iters);
  schedule.wd_incr_steps = batches.samples_after(training.train_iters);
  schedule.wsd_decay_steps =
      batches.is_constant() ? config.lr_wsd_decay_iters.value_or(0) * batches.final_batch_size()
                            : schedule.lr_decay_steps - batches.samples_after(anneal_start);
  schedule.lr_warmup_steps = static_cast<double>(batches.samples_after(config.lr_warmup_iters));
}

void set_steps_from_samples(ParamSchedule& schedule, const SchedulerConfig& config,
                            const TrainingConfig& training) {
  require(!config.lr_decay_iters && config.lr_warmup_iters == 0,
          "--lr-decay-iters and --lr-warmup-iters need --train-iters", "",
          "use --lr-decay-samples and --lr-warmup-samples with --train-samples");
  schedule.lr_decay_steps = config.lr_decay_samples.value_or(training.train_samples);
  schedule.wd_incr_steps = training.train_samples;
  schedule.wsd_decay_steps = config.lr_wsd_decay_samples.value_or(0);
  schedule.lr_warmup_steps = static_cast<double>(config.lr_warmup_samples);
}

void set_warmup_fraction(ParamSchedule& schedule, const SchedulerConfig& config) {
  if (!config.lr_warmup_fraction) return;
  const double fraction = *config.lr_warmup_fraction;
  require(schedule.lr_warmup_steps == 0,
          "--lr-warmup-fraction excludes --lr-warmup-iters and --lr-warmup-samples", "",
          "give one of them");
  require(fraction >= 0 && fraction < 1, "--lr-warmup-fraction must lie in [0, 1)",
          std::to_string(fraction), "give a fraction of the decay steps");
  schedule.lr_warmup_steps = fraction * static_cast<double>(schedule.lr_decay_steps);
}

void set_weight_decay(ParamSchedule& schedule, const SchedulerConfig& config, double weight_decay) {
  schedule.wd_incr_style = config.weight_decay_incr_style;
  if (config.weight_decay_incr_style == WeightDecayIncrStyle::constant) {
    require(!config.start_weight_decay && !config.end_weight_decay,
            "--start-weight-decay and --end-weight-decay have no effect with "
            "--weight-decay-incr-style constant",
            "", "choose --weight-decay-incr-style linear or cosine, or give --weight-decay alone");
    schedule.start_wd = schedule.end_wd = weight_decay;
    return;
  }
  require(config.start_weight_decay && config.end_weight_decay,
          "--weight-decay-incr-style linear and cosine need --start-weight-decay and "
          "--end-weight-decay",
          "", "give both");
  schedule.start_wd = *config.start_weight_decay;
  schedule.end_wd = *config.end_weight_decay;
}

void check(const ParamSchedule& schedule, const SchedulerConfig& config) {
  require(schedule.min_lr >= 0, "--min-lr must not be negative", std::to_string(schedule.min_lr),
          "");
  require(schedule.max_lr >= schedule.min_lr, "--min-lr exceeds --lr",
          std::to_string(schedule.min_lr) + " > " + std::to_string(schedule.max_lr), "");
  require(schedule.init_lr <= schedule.max_lr, "--lr-warmup-init exceeds --lr",
          std::to_string(schedule.init_lr) + " > " + std::to_string(schedule.max_lr), "");
  require(schedule.lr_decay_steps > 0, "the learning rate must decay over at least one sample",
          std::to_string(schedule.lr_decay_steps),
          "give a positive --lr-decay-iters or --lr-decay-samples");
  require(
      schedule.lr_warmup_steps >= 0 &&
          schedule.lr_warmup_steps < static_cast<double>(schedule.lr_decay_steps),
      "the warm-up of the learning rate must end before its decay does",
      "warm-up of " + std::to_string(static_cast<std::int64_t>(schedule.lr_warmup_steps)) +
          " samples, decay over " + std::to_string(schedule.lr_decay_steps),
      "lower --lr-warmup-iters (or -samples, -fraction) or raise --lr-decay-iters (or -samples)");
  require(schedule.lr_decay_style != LrDecayStyle::WSD || config.lr_wsd_decay_iters ||
              config.lr_wsd_decay_samples,
          "--lr-decay-style WSD needs the length of its annealing phase", "",
          "give --lr-wsd-decay-iters or --lr-wsd-decay-samples");
  require(schedule.wsd_decay_steps >= 0, "--lr-wsd-decay-iters must not be negative",
          std::to_string(schedule.wsd_decay_steps), "");
  require(schedule.start_wd >= 0, "weight decay must not be negative",
          std::to_string(schedule.start_wd), "");
  require(schedule.end_wd >= schedule.start_wd, "--end-weight-decay is below --start-weight-decay",
          std::to_string(schedule.end_wd) + " < " + std::to_string(schedule.start_wd), "");
}

}  // namespace

ParamSchedule make_param_schedule(const SchedulerConfig& scheduler, const TrainingConfig& training,
                                  double weight_decay) {
  require(scheduler.lr.has_value(), "--lr is missing", "",
          "give the peak learning rate, for example --lr 3e-4");
  ParamSchedule schedule;
  schedule.init_lr = scheduler.lr_warmup_init;
  schedule.max_lr = *scheduler.lr;
  schedule.min_lr = scheduler.min_lr;
  schedule.lr_decay_style = scheduler.lr_decay_style;
  schedule.lr_wsd_decay_style = scheduler.lr_wsd_decay_style;
  if (training.train_samples > 0) {
    set_steps_from_samples(schedule, scheduler, training);
  } else {
    require(training.train_iters > 0, "--train-iters or --train-samples is missing", "",
            "give the length of the run");
    set_steps_from_iterations(schedule, scheduler, training);
  }
  set_warmup_fraction(schedule, scheduler);
  set_weight_decay(schedule, scheduler, weight_decay);
  check(schedule, scheduler);
  return schedule;
}

ParamSchedule make_param_schedule(const Settings& settings) {
  ParamSchedule schedule = make_param_schedule(*settings.scheduler, *settings.training,
                                               settings.optimizer->weight_decay);
  schedule.decoupled_max_lr = settings.optimizer->decoupled_lr;
  schedule.decoupled_min_lr = settings.optimizer->decoupled_min_lr.value_or(schedule.min_lr);
  return schedule;
}

}  // namespace megatron
