// A pass of a microbatch through a model: training, evaluation, scoring and generation alike.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "megatron/nn/forward_context.h"
#include "megatron/nn/microbatch.h"
#include "megatron/ops/sequence_cache.h"

namespace megatron {

struct Rank;
struct TransformerConfig;

/// What a pass returns from its last stage. All but the loss are float32 tensors.
enum class Wants : std::uint8_t {
  loss,          ///< StepOutput; the microbatch has "labels" and "loss_mask"
  token_losses,  ///< [b, s]: −log p(label) of every position; needs the tensors of the loss
  logits,        ///< [b, s, vocab_size], without vocabulary padding
  last_logits,   ///< [rows, vocab_size]: of the last tokens of sequences (Pass::num_logits)
  hidden         ///< [b, s, h], or [b, s, n, h] of n residual streams: the output of the final norm
};

/// Rows of the output of the final norm that a pass returns beside what it wants.
struct LastHidden {
  std::vector<std::int64_t> counts = {};  ///< of last tokens of the sequences, as Pass::num_logits
  at::Tensor rows = {};                   ///< receives their rows [rows, h] in float32
};

/// A microbatch and what is wanted of it. Sequences of different lengths are a packed microbatch;
/// without "position_ids" their positions follow those in their caches.
struct Pass {
  const Microbatch& microbatch;
  Wants wants = Wants::loss;
  bool training = false;               ///< turns dropout on
  bool recomputes_all_layers = false;  ///< backward computes the activations of its layers again
  /// One for each packed sequence, or one for all unpacked samples. Layers read them and append to
  /// them. Null: every sequence begins with this pass. With caches every rank of cp has all rows of
  /// the microbatch, unless they are own_rows().
  const Caches* caches = nullptr;
  /// With an encoder and caches: the texts, in their order, of the sequences whose caches have none
  /// yet (SequenceCache::num_encoded). Null: all have.
  const Microbatch* encoder = nullptr;
  /// For last_logits how many of its last tokens count, for each packed sequence or the one sample;
  /// their rows come in the order of the sequences. Empty: one of each sequence or sample.
  std::vector<std::int64_t> num_logits = {};
  /// k > 0: runs depth k of multi-token prediction alone (models/multi_token_prediction.h), where
  /// the rank holds the whole model. "tokens" are those k positions later, and "previous_rows" what
  /// depth k − 1 returned [s, b, h].
  std::int64_t depth = 0;
  at::Tensor* rows = nullptr;         ///< receives the rows [s, b, h] that the head reads
  LastHidden* last_hidden = nullptr;  ///< null: none is wanted
  /// Undefined, and receives the experts that routers choose, also those that drop the token: int32
  /// [num_layers, tokens, topk], 0 in layers without experts. Null: they are not wanted.
  at::Tensor* routed_experts = nullptr;
};

/// Returns the same pass over another microbatch, which it refers to.
Pass with_microbatch(const Pass& pass, const Microbatch& microbatch);

/// Returns a microbatch of sequences of token ids, packed if there are several.
Microbatch microbatch_of(const std::vector<std::span<const std::int64_t>>& sequences);

/// Returns the rows that this rank of cp computes of a pass over such sequences: chunks of each
/// (zigzag_runs()). Attention gathers the new keys and values of all ranks, so that each rank has
/// whole caches. Of few rows, as in decode steps, every rank computes all, which needs no
/// communication over cp.
Microbatch own_rows(Microbatch microbatch, const Caches& caches, const Axis& cp);

/// Returns whether the hidden rows of a pass are split over tp (Rank::sequence_parallel). They are
/// only where a loss is computed: other passes have any number of rows.
bool is_sequence_parallel(const Pass& pass, const Rank& rank);

/// Returns what the layers share in a pass, but for rotary tables, hooks and offload.
ForwardContext forward_context(const Pass& pass, const TransformerConfig& config, const Rank& rank);

/// Returns the positions of the tokens: int64 [b, s], or [1, s] when all samples share them.
at::Tensor position_ids(const Pass& pass);

/// Returns the number of rows of so many last tokens of the sequences (Pass::num_logits).
std::int64_t num_last_rows(const Pass& pass, const std::vector<std::int64_t>& counts);

/// Returns the rows [rows, 1, …], or [1, b, …] of unpacked samples, of so many last tokens of the
/// sequences in [s, b, …]. Of own_rows() those of all ranks; collective over cp then, of which
/// `context` must know.
at::Tensor last_rows(const at::Tensor& rows_sb, const Pass& pass,
                     const std::vector<std::int64_t>& counts, const ForwardContext& context = {});

/// Returns the zeros that Pass::routed_experts begins with.
at::Tensor no_routed_experts(const Pass& pass, const TransformerConfig& config,
                             const at::Device& device);
/// Returns Pass::routed_experts as [tokens, layers with experts, topk], on the CPU.
at::Tensor experts_by_token(const at::Tensor& routed_experts, const TransformerConfig& config);

/// Counts the tokens of a pass that has run in its caches.
void advance_caches(const Pass& pass);

}  // namespace megatron
