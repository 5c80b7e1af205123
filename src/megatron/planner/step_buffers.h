// Formulas for what a step holds at its peak besides weights, optimizer state and the activations
// that layers keep: buffers of forward and backward, tables of positions, and the tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/config/cp_comm_type.h"
#include "megatron/planner/activation_memory.h"

namespace megatron {

struct TransformerConfig;

/// Bytes of offloaded activations that may wait to be copied at most.
inline constexpr double kMostOffloadInFlight = 256 << 20;

/// The part of a model and of a batch that a rank of a pipeline has.
struct StepShape {
  std::vector<std::int64_t> layers = {};  ///< 0-based, ascending
  bool has_output = true;                 ///< final norm, projection and loss
  std::int64_t vocabulary = 0;            ///< padded, on this rank of tp
  std::int64_t micro_batch_size = 1;
  double microbatches_in_flight = 1;
  std::int64_t num_microbatches = 1;
  ActivationPlan activations = {};
};

/// Returns the bytes that the forward pass of a layer's attention holds besides activations: keys
/// and values packed for the CPU's kernels, over cp two parts of them and a float32 result (p2p) or
/// the q, k and v that are exchanged.
double attention_forward_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                               CpCommType exchange, std::int64_t micro_batch_size);

/// Returns the bytes that the backward pass of a layer's attention holds besides activations: the
/// gradients of its result and of q, k and v, and the partial sums of the CPU's kernels. p2p also
/// holds two parts of the keys and values, three parts of their gradients in float32 and dq in
/// float32; all_gather holds the gradients of all keys and values twice.
double attention_backward_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                                CpCommType exchange, std::int64_t micro_batch_size);

/// Returns the bytes that the backward pass of a dense MLP with `width` hidden features holds: the
/// gradient of its activation function's result, that result, and the gradient of its argument.
double mlp_backward_bytes(const TransformerConfig& config, std::int64_t width,
                          const ActivationLayout& layout);

/// Returns the bytes that the final norm and the loss hold: input, result and gradient of the norm,
/// and logits of a block of tokens.
double loss_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                  std::int64_t vocabulary);

/// Bytes of the tokens, labels and positions (int64) and of the loss mask (float32) of one token.
inline constexpr double kSampleBytes = 28;

/// Returns the workspace that each thread of the CPU's attention kernels keeps; the largest of the
/// layers. It is no memory of tensors (ops/parallel_kernel.h).
double attention_workspace_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                                 const StepShape& shape);

/// Returns what a step holds at most besides weights, optimizer state and the activations of
/// layers, of which `stage` has those of the shape. Four moments can be the peak: the loss,
/// attention in the last layer, and in any layer the backward passes of the MLP (with a gradient of
/// its own if there is dropout) or of experts with balanced routing, and of attention, which comes
/// when what the MLP kept is gone. The activations that a layer recomputes are held from the start
/// of its backward, or of that of its group. To the largest of these it adds what is held
/// throughout: rotary tables and, over cp, the places of all rows of the sequence (16 bytes each),
/// of each microbatch in flight; the tokens, labels, positions and masks of the step's microbatches
/// (28 bytes a token of the rank). Samples that are prepared ahead (--num-workers) and
/// attention_workspace_bytes() are not counted.
double step_buffer_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                         const StepShape& shape, const StageActivations& stage);

}  // namespace megatron
