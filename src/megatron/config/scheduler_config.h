// The settings of the schedules of the learning rate and of weight decay.
#pragma once

#include <cstdint>
#include <optional>

namespace megatron {

enum class LrDecayStyle { constant, linear, cosine, inverse_square_root, WSD };
enum class WsdDecayStyle { exponential, linear, cosine, minus_sqrt };
enum class WeightDecayIncrStyle { constant, linear, cosine };

struct SchedulerConfig {
  std::optional<double> lr;
  double min_lr = 0;
  LrDecayStyle lr_decay_style = LrDecayStyle::linear;
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::exponential;
  std::optional<std::int64_t> lr_decay_iters, lr_decay_samples;
  std::optional<std::int64_t> lr_wsd_decay_iters, lr_wsd_decay_samples;
  std::optional<double> lr_warmup_fraction;
  std::int64_t lr_warmup_iters = 0, lr_warmup_samples = 0;
  double lr_warmup_init = 0;
  std::optional<double> start_weight_decay, end_weight_decay;
  WeightDecayIncrStyle weight_decay_incr_style = WeightDecayIncrStyle::constant;
  bool override_opt_param_scheduler = false;
  bool use_checkpoint_opt_param_scheduler = false;
};

}  // namespace megatron
