// The settings of the optimizer, its precision and its schedules as plain structs, with
// Megatron-LM's names and defaults.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace megatron {

struct OptimizerConfig {
  std::string optimizer = "adam";  ///< adam | sgd | adafactor
  double weight_decay = 0.01;
  bool apply_wd_to_qk_layernorm = false;
  double clip_grad = 1.0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double sgd_momentum = 0.9;
  std::optional<double> decoupled_lr, decoupled_min_lr;  ///< for the embedding and the output layer
  std::optional<double> adafactor_beta1;                 ///< none: no first moment
  double adafactor_decay_rate = -0.8, adafactor_clip_threshold = 1, adafactor_eps1 = 1e-30,
         adafactor_eps2 = 1e-3;
  bool adafactor_scale_parameter = false;
  /// fp32 | bf16 | fp16 | int8 (blockwise)
  std::string exp_avg_dtype = "fp32", exp_avg_sq_dtype = "fp32";
  bool use_precision_aware_optimizer = false;
  std::string main_grads_dtype = "fp32", main_params_dtype = "fp32";
  bool main_grads_error_feedback = false;  ///< keep what rounding bf16 main gradients lost
};

/// Loss scaling for fp16, which keeps small gradients from underflowing: static, or dynamic with
/// Megatron's rule.
struct LossScaleConfig {
  std::optional<double> loss_scale;  ///< static; none: dynamic
  double initial_loss_scale = 4294967296.0;
  double min_loss_scale = 1;
  std::int64_t loss_scale_window = 1000;  ///< finite steps before the scale doubles
  std::int64_t hysteresis = 2;            ///< non-finite steps before the scale halves
};

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
