// Evaluates the schedules of learning rate and weight decay (warm-up, decay, annealing), as in
// Megatron Core's optimizer_param_scheduler.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "megatron/base/error.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/optimizer/param_scheduler.h"

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

}  // namespace megatron
