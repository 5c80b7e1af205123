// The contract between the optimizer and the kernels of each device (src/kernels/cpu,
// src/kernels/cuda): statistics of gradients, the step's scalars, and the update rules, each as
// plain arguments.
#pragma once

#include <cstdint>

#include "kernels/block_sums.h"
#include "kernels/state_code.h"
#include "kernels/step_scalars.h"
#include "kernels/type.h"

namespace megatron::kernels {

/// The gradient of a piece of one parameter: 2^level blocks of kStateBlock elements (block_sums.h),
/// or fewer at the end of the parameter.
struct GradientChunk {
  const void* grad;
  std::int64_t count;
  std::int64_t slot;  ///< where the chunk's sum goes
  /// Statistics skip these elements: padding, and elements that another rank counts.
  std::int64_t skip_begin, skip_end;
};

/// Statistics of all gradients. All pointers point to the memory of the device.
struct StatisticsPlan {
  const GradientChunk* chunks;
  std::int64_t num_chunks;
  Type grad;
  SumTable table;
  /// One sum for each slot. Kernels leave the slots of other ranks' chunks alone.
  double* sums;
  double* parameter_sums;  ///< [table.num_parameters]
};

/// A piece of one parameter as an update rule changes it. Pointers point to its first element.
struct UpdateChunk {
  void* main;  ///< the weights that the update works on
  /// Receives the weights of `main` rounded to the model's type. It is null when the model computes
  /// with `main` itself.
  void* weight;
  const void* grad;
  void* state[2];  ///< as the rule says; null for a state that it does not keep
  /// The scales of f16 and 8-bit states, one for each kStateBlock elements. It is null for other
  /// types.
  float* state_scale[2];
  std::int64_t count;
  std::int32_t group;  ///< index of the learning rate in StepScalars::lr
  bool is_decayed;
  double lr_factor = 1;  ///< of that learning rate
};

/// When `main` is f64, everything else is f64 too. Otherwise `main` is f32.
struct UpdateTypes {
  Type main = Type::f32, weight = Type::f32, grad = Type::f32;
  Type state[2] = {Type::f32, Type::f32};
  /// Not null for 8-bit states, whose elements are bytes of that code: then `state` does not count.
  const StateCode* code[2] = {nullptr, nullptr};
};

/// The chunks that one rule updates. All pointers point to the memory of the device.
struct UpdatePlan {
  const UpdateChunk* chunks;
  std::int64_t num_chunks;
  UpdateTypes types;
  const StepScalars* scalars;
};

/// AdamW (Loshchilov and Hutter 2019) for g = grad_scale·gradient. The states are exp_avg m and
/// exp_avg_sq v: m ← beta1·m + (1 − beta1)·g and v ← beta2·v + (1 − beta2)·g², then
/// w ← w − lr·(m' / (√v' + eps) + weight_decay·w), where m' and v' are corrected for their bias.
struct AdamwRule {
  double beta1 = 0, beta2 = 0, eps = 0;
};

/// SGD with L2 decay: b ← momentum·b + g + weight_decay·w, then w ← w − lr·b. The state is
/// momentum_buffer; without it b = g + weight_decay·w.
struct SgdRule {
  double momentum = 0;
};

/// The kernels of a device. They queue their work and do not wait for it.
struct OptimizerOperations {
  /// Computes sums[slot] = Σ gradient² in float64, in one fixed order.
  void (*sum_squares)(const StatisticsPlan&);
  /// Computes sums[slot] = number of zeros among the gradients.
  void (*count_zeros)(const StatisticsPlan&);
  /// Computes parameter_sums[p], the sum of the slots of parameter p.
  void (*reduce_sums)(const StatisticsPlan&);
  /// Runs finalize_step() on the sums of the parameters.
  void (*finalize)(const StatisticsPlan&, const StepRules&, const StepInputs&, StepScalars*);
  /// Stores the sum over all parameters in scalars->num_zeros.
  void (*finalize_zeros)(const StatisticsPlan&, StepScalars*);
  // The update rules, in one pass each. They do nothing when !scalars->applied.
  void (*adamw)(const UpdatePlan&, const AdamwRule&);
  void (*sgd)(const UpdatePlan&, const SgdRule&);
};

}  // namespace megatron::kernels
