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
  std::int64_t skip_begin,
      skip_end;  ///< elements that statistics leave out: padding, and what another rank counts
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
  void (*sum_squares)(
      const UpdatePlan&);  ///< sums[slot] = Σ gradient² in float64, in one fixed order
  void (*count_zeros)(const UpdatePlan&);  ///< sums[slot] = number of zeros among the gradients
  void (*reduce_sums)(
      const UpdatePlan&);  ///< parameter_sums[p] = what the slots of parameter p add up to
  void (*finalize)(const UpdatePlan&,
                   const StepInputs&);        ///< finalize_step on the parameters' sums
  void (*finalize_zeros)(const UpdatePlan&);  ///< scalars->num_zeros = Σ of the parameters' sums
  void (*update)(
      const UpdatePlan&);  ///< applies the rule in one pass, or does nothing when !scalars->applied
};

}  // namespace megatron::kernels
