// One optimizer step as plain arguments: the contract between the optimizer and the kernels of each device (src/kernels/cpu, src/kernels/cuda).
#pragma once

#include <cstdint>

#include "kernels/step_scalars.h"
#include "kernels/type.h"

namespace megatron::kernels {

/// Elements of an fp16 state that share one scale, a power of two.
inline constexpr std::int64_t kStateBlock = 256;
/// Most elements of a chunk; chunks of a parameter begin at multiples of it.
inline constexpr std::int64_t kChunkElements = 1 << 16;

/// A piece of one parameter. Pointers are to its first element.
struct UpdateChunk {
  void* main;    ///< the weights that the update works on
  void* weight;  ///< where they are rounded to afterwards; null when `main` is what the model computes with
  const void* grad;
  void* state[2];         ///< AdamW: exp_avg, exp_avg_sq; SGD: momentum_buffer or null
  float* state_scale[2];  ///< of f16 states: one for each kStateBlock elements; else null
  std::int64_t count;
  std::int32_t parameter;  ///< ascending
  std::int32_t group;      ///< of the learning rate
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
  double* partial;  ///< [num_chunks], scratch
  StepScalars* scalars;
};

/// The kernels of a device; they queue their work and do not wait for it.
struct OptimizerOperations {
  void (*sum_squares)(const UpdatePlan&);                      ///< partial[c] = Σ gradient² in float64, one fixed order
  void (*settle)(const UpdatePlan&, const StepInputs&);        ///< settle_step on the partial sums
  void (*count_zeros)(const UpdatePlan&, double num_padding);  ///< scalars->num_zeros = zeros among the gradients − num_padding
  void (*update)(const UpdatePlan&);                           ///< the rule, one pass; nothing when !scalars->applied
};

}  // namespace megatron::kernels
