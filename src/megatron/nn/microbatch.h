// A microbatch, the unit of work of a training step, and the values that pass between pipeline
// stages.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/schedules/hybrid_context_summary.h"

namespace megatron {

struct Axis;
struct Rank;
struct SequencePlacement;

/// The ranks that share a microbatch of hybrid context parallelism
/// (schedules/hybrid_context_schedule.h), or a pass of inference (own_rows() in models/pass.h).
struct HybridContext {
  std::int64_t num_ranks = 1;  ///< neighbours in dp-cp
  /// Begins of the parts of the rows that are divided over these ranks, each on its own, and the
  /// sum of their lengths. A part is a sequence, and in training its padding as a sequence of its
  /// own.
  std::vector<std::int64_t> parts = {};
  HybridContextSummary step = {};  ///< of the whole step
};

/// The sequences of a packed microbatch, over all ranks that share it.
struct PackedSequences {
  std::vector<std::int64_t> cu_seqlens;  ///< begin of each sequence, and the sum of their lengths
  std::int64_t num_samples = 1;          ///< samples of the dataset that they come from
  /// > 0: the first `num_samples` sequences are samples without their padding, which had so many
  /// positions each. One more sequence may hold a few rows of padding.
  std::int64_t padded_length = 0;
  std::optional<HybridContext> hybrid = {};  ///< unset: the ranks of cp share the rows
  std::int64_t num_sequences() const { return std::ssize(cu_seqlens) - 1; }
};

/// Named tensors of a few samples: the fields of their dataset, and what a step adds.
struct Microbatch {
  /// The tensors by name. A field without positions has one row for each sample or packed sequence.
  /// GPT reads tokens and labels, int64 [b, s]; position_ids, int64 [b, s], or [1, s] when all
  /// samples share them; loss_mask, float32 [b, s]; optionally document_ids, int32 [b, s], which
  /// keep attention inside a document; optionally loss_gradient, the scalar gradient that backward
  /// of the loss will receive; and optionally aux_loss_gradient, the scalar gradient of the
  /// auxiliary losses of routers. With context parallelism (context_slice()) these are the
  /// positions of one rank, document_ids those of the whole sequence, and num_tokens is the sum of
  /// the whole loss mask.
  std::map<std::string, at::Tensor> tensors;
  /// int64 [b], on the device of the tensors: consumed samples at the start of the step + position
  /// in the global batch. Random numbers are drawn by these ordinals. With packed sequences one for
  /// each sequence.
  at::Tensor sample_ordinals;
  /// Set when sequences of different lengths lie one after another in one row (b = 1).
  std::optional<PackedSequences> packed = {};
  /// Tokens of each sample or packed sequence over all ranks that share it, without the padding
  /// behind them. Empty: nothing is padding.
  std::vector<std::int64_t> lengths = {};
  /// Names of the tensors [b, s, …] whose positions the ranks of a microbatch divide. The first is
  /// the one that counts samples and positions.
  std::vector<std::string> per_position = {"tokens", "labels", "loss_mask", "position_ids"};

  /// Throws InternalError when the tensor is absent.
  const at::Tensor& at(const std::string& name) const;
  bool has(const std::string& name) const { return tensors.contains(name); }
  /// Returns the first tensor of `per_position`, or any tensor without those.
  const at::Tensor& first_field() const {
    return per_position.empty() ? tensors.begin()->second : at(per_position.front());
  }
  /// Returns the ranks that share it by hybrid context parallelism; null without that.
  const HybridContext* hybrid() const {
    return packed && packed->hybrid ? &*packed->hybrid : nullptr;
  }
  /// Returns the number of samples of the dataset.
  std::int64_t num_samples() const;
  /// Returns the number of tokens whose losses count, over all ranks of cp, as a scalar.
  at::Tensor num_tokens() const;
  /// Returns the sum over its samples of the share of their positions that the layers compute, and
  /// of the square of that share.
  std::pair<double, double> computed_samples() const;
};

/// Returns the ordinal of sequence `sequence` of a sample that was cut into packed sequences.
/// Sequences of one sample draw different random numbers.
std::int64_t packed_ordinal(std::int64_t sample_ordinal, std::int64_t sequence);
/// Returns the ordinal of the sample that an ordinal of a packed sequence or a sample belongs to.
std::int64_t sample_of_ordinal(std::int64_t ordinal);

/// Returns the axis of the ranks that share a microbatch.
const Axis& context_axis(const Microbatch& microbatch, const Rank& rank);
/// Returns where the rows of a microbatch lie on `ranks` ranks, of which this one has the rows of
/// its tensors.
SequencePlacement placement_of(const Microbatch& microbatch, std::int64_t ranks);

/// Returns the positions of a microbatch that rank `rank` of cp holds (sequence_placement.h). A
/// microbatch that holds only these already, also by hybrid context parallelism, is not changed.
Microbatch context_slice(Microbatch microbatch, std::int64_t rank, std::int64_t ranks);

/// Returns the document ids, int32 [b, s], that keep attention of a bidirectional model off
/// padding: 0 for the tokens of each sample, of which `lengths` has the numbers, and 1 for padding.
/// They are needed for whole sequences, so before context_slice().
at::Tensor document_ids_of(const std::vector<std::int64_t>& lengths, std::int64_t sequence_length);

/// The tensors that a pipeline stage sends to the next, in a fixed order.
using Activations = std::vector<at::Tensor>;
/// Name, shape and dtype of one activation, known to the receiver before it arrives.
struct ActivationSpec {
  std::string name;  ///< "hidden"
  std::vector<std::int64_t> shape;
  c10::ScalarType dtype = c10::kFloat;
};

/// A loss to report, sum / count, under its name in the log.
struct LossTerm {
  std::string name;       ///< "lm loss"
  at::Tensor sum, count;  ///< scalars without a gradient
};

/// The loss of a microbatch, or this rank's part of it: the ranks that share the microbatch add
/// their roots, sums and counts.
struct StepOutput {
  at::Tensor root;               ///< differentiable scalar; root / count is the loss
  at::Tensor count;              ///< scalar, that of the first term
  at::Tensor token_losses = {};  ///< [b, s]: −log p(label), or undefined
  std::vector<LossTerm> terms = {};

  /// Returns the loss root / count, which is its own only term.
  static StepOutput of(std::string name, const at::Tensor& root, const at::Tensor& count,
                       at::Tensor token_losses = {}) {
    return {root, count, std::move(token_losses), {{std::move(name), root.detach(), count}}};
  }
};

/// The result of one stage: activations for the next stage or, on the last stage, what the pass
/// wants: the loss, or another result.
struct StageOutput {
  Activations activations = {};
  std::optional<StepOutput> loss = {};
  at::Tensor result = {};
};

}  // namespace megatron
