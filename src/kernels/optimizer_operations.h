// The contract between the optimizer and the kernels of each device (src/kernels/cpu,
// src/kernels/cuda): one optimizer step as plain arguments.
#pragma once

#include <cstdint>

#include "kernels/block_sums.h"
#include "kernels/step_scalars.h"
#include "kernels/type.h"

namespace megatron::kernels {

/// A piece of one parameter: 2^level blocks of kStateBlock elements (block_sums.h), or fewer at the
/// end of the parameter. Pointers point to its first element.
struct UpdateChunk {
  void* main;  ///< the weights that the update works on
  /// Receives the weights of `main` rounded to the model's type. It is null when the model computes
  /// with `main` itself.
  void* weight;
  const void* grad;
  /// AdamW has exp_avg and exp_avg_sq. SGD has momentum_buffer, or null without momentum.
  void* state[2];
  /// The scales of f16 states, one for each kStateBlock elements. It is null for other types.
  float* state_scale[2];
  std::int64_t count;
  std::int64_t slot;  ///< where the chunk's sum goes
  /// Statistics skip these elements: padding, and elements that another rank counts.
  std::int64_t skip_begin, skip_end;
  std::int32_t group;  ///< index of the learning rate in StepScalars::lr
  bool is_decayed;
};

/// When `main` is f64, everything else is f64 too. Otherwise `main` is f32.
struct UpdateTypes {
  Type main = Type::f32, weight = Type::f32, grad = Type::f32;
  Type state[2] = {Type::f32, Type::f32};
};

/// All pointers point to the memory of the device.
struct UpdatePlan {
  const UpdateChunk* chunks;
  std::int64_t num_chunks;
  UpdateTypes types;
  StepRules rules;
  SumTable table;
  /// One sum for each slot. Kernels leave the slots of other ranks' chunks alone.
  double* sums;
  double* parameter_sums;  ///< [table.num_parameters]
  StepScalars* scalars;
};

/// The kernels of a device. They queue their work and do not wait for it.
struct OptimizerOperations {
  /// Computes sums[slot] = Σ gradient² in float64, in one fixed order.
  void (*sum_squares)(const UpdatePlan&);
  /// Computes sums[slot] = number of zeros among the gradients.
  void (*count_zeros)(const UpdatePlan&);
  /// Computes parameter_sums[p], the sum of the slots of parameter p.
  void (*reduce_sums)(const UpdatePlan&);
  /// Runs finalize_step() on the sums of the parameters.
  void (*finalize)(const UpdatePlan&, const StepInputs&);
  /// Stores the sum over all parameters in scalars->num_zeros.
  void (*finalize_zeros)(const UpdatePlan&);
  /// Applies the rule in one pass. Does nothing when !scalars->applied.
  void (*update)(const UpdatePlan&);
};

}  // namespace megatron::kernels
