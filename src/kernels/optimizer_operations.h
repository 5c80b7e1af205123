// One optimizer step as plain arguments: the contract between the optimizer and the kernels of each
// device (src/kernels/cpu, src/kernels/cuda).
#pragma once

#include <cstdint>

#include "kernels/block_sums.h"
#include "kernels/step_scalars.h"
#include "kernels/type.h"

namespace megatron::kernels {

/// A piece of one parameter: 2^level blocks of kStateBlock elements (block_sums.h), fewer where the
/// parameter ends. Pointers are to its first element.
struct UpdateChunk {
  void* main;    ///< the weights that the update works on
  void* weight;  ///< where they are rounded to afterwards; null when `main` is what the model
                 ///< computes with
  const void* grad;
  void* state[2];         ///< AdamW: exp_avg, exp_avg_sq; SGD: momentum_buffer or null
  float* state_scale[2];  ///< of f16 states: one for each kStateBlock elements; else null
  std::int64_t count;
  std::int64_t slot;  ///< of its sum
  std::int64_t skip_begin,
      skip_end;  ///< elements that statistics leave out: padding, and what another rank counts
  std::int32_t group;  ///< of the learning rate
  bool is_decayed;
};

/// `main` is f32, or f64 with everything else f64.
struct UpdateTypes {
  Type main = Type::f32, weight = Type::f32, grad = Type::f32;
  Type state[2] = {Type::f32, Type::f32};
};

/// All pointers are to the device's memory.
struct UpdatePlan {
  const UpdateChunk* chunks;
  std::int64_t num_chunks;
  UpdateTypes types;
  StepRules rules;
  SumTable table;
  double* sums;            ///< one for each slot; those of other ranks' chunks are left alone
  double* parameter_sums;  ///< [table.num_parameters]
  StepScalars* scalars;
};

/// The kernels of a device; they queue their work and do not wait for it.
struct OptimizerOperations {
  void (*sum_squares)(const UpdatePlan&);  ///< sums[slot] = Σ gradient² in float64, one fixed order
  void (*count_zeros)(const UpdatePlan&);  ///< sums[slot] = zeros among the gradients
  void (*reduce_sums)(
      const UpdatePlan&);  ///< parameter_sums[p] = what the slots of parameter p add up to
  void (*finalize)(const UpdatePlan&,
                   const StepInputs&);        ///< finalize_step on the parameters' sums
  void (*finalize_zeros)(const UpdatePlan&);  ///< scalars->num_zeros = Σ of the parameters' sums
  void (*update)(const UpdatePlan&);  ///< the rule, one pass; nothing when !scalars->applied
};

}  // namespace megatron::kernels
