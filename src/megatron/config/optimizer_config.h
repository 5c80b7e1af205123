// The settings of the optimizer and of the precision of its state.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace megatron {

struct OptimizerConfig {
  /// Regular expressions over parameter names (models/freeze.h). Empty: all parameters train.
  std::vector<std::string> freeze, train_only;
  std::string optimizer = "adam";  ///< adam | sgd
  double weight_decay = 0.01;
  bool apply_wd_to_qk_layernorm = false;
  double clip_grad = 1.0;
  bool qk_clip = false;
  double qk_clip_alpha = 0.5, qk_clip_threshold = 100;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_eps = 1e-8;
  double sgd_momentum = 0.9;
  std::optional<double> decoupled_lr, decoupled_min_lr;  ///< for the embedding and the output layer
  /// fp32 | bf16 | fp16 | int8 (blockwise)
  std::string exp_avg_dtype = "fp32", exp_avg_sq_dtype = "fp32";
  bool use_precision_aware_optimizer = false;
  std::string main_grads_dtype = "fp32", main_params_dtype = "fp32";
  bool main_grads_error_feedback = false;  ///< keep what rounding bf16 main gradients lost
};

}  // namespace megatron
