// The unit of work of a training step: named tensors of a few samples and the ordinals that give
// their random numbers coordinates.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

struct Microbatch {
  /// GPT: tokens, labels int64 [b, s]; position_ids int64 [b, s], or [1, s] when all samples share
  /// them; loss_mask float32 [b, s]; optionally document_ids int32 [b, s] (attention stays inside
  /// one) and loss_gradient, a scalar: what backward of the loss starts from.
  std::map<std::string, at::Tensor> tensors;
  /// int64 [b], on the device of the others: consumed samples at the start of the step + position
  /// in the global batch.
  at::Tensor sample_ordinals;

  const at::Tensor& at(const std::string& name) const;  ///< InternalError when absent
  bool has(const std::string& name) const { return tensors.contains(name); }
};

/// What passes from a stage of the pipeline to the next: tensors in a fixed order, and what the
/// receiver must know of each beforehand.
using Activations = std::vector<at::Tensor>;
struct ActivationSpec {
  std::string name;  ///< "hidden"
  std::vector<std::int64_t> shape;
  c10::ScalarType dtype = c10::kFloat;
};

/// What a forward step returns: Σ loss over counted tokens (differentiable), their number, and
/// further named sums to report.
struct StepOutput {
  at::Tensor loss_sum;      ///< scalar
  at::Tensor count;         ///< scalar float32: Σ loss_mask
  at::Tensor token_losses;  ///< [b, s], detached: −log p(label)
  std::map<std::string, at::Tensor> sums;
};

/// What a stage hands on: activations to the next stage or, on the last one, the loss.
struct StageOutput {
  Activations activations;
  std::optional<StepOutput> loss;
};

}  // namespace megatron
