// Keeps the load of experts even: auxiliary losses (Shazeer et al. 2017; Fedus et al. 2021;
// DeepSeek-V2, section 2.1.3), the z-loss (Zoph et al. 2022), Sinkhorn routing (Clark et al. 2022)
// and the capacity of experts. All of it counts over the tokens of the whole microbatch without
// padding, so no result depends on how the tokens are distributed over ranks and padded.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

#include "megatron/ops/dropout.h"
#include "megatron/ops/routing.h"
#include "megatron/ops/sequence_placement.h"

namespace megatron {

struct Rank;
struct MoeConfig;

/// The sample, or the packed sequence, of each token of a rank.
struct TokenSamples {
  std::int64_t count = 1;    ///< samples or packed sequences of the microbatch
  at::Tensor of_token = {};  ///< int64 [tokens of the rank]; undefined: token t is of t mod count
};

/// Tokens are numbered position by position, samples inside: token = position · batch + sample. The
/// ranks of tp-cp route them together: those of a rank of cp (`placement`), of which the ranks of
/// tp take successive runs.
struct RoutingSpan {
  std::int64_t batch = 1;          ///< samples; 1 with packed sequences
  std::int64_t num_positions = 0;  ///< of this rank
  /// Tokens of each rank of tp-cp, or of tp where the ranks of cp route the same.
  std::vector<std::int64_t> tokens_of_ranks;
  std::int64_t place = 0;                        ///< of this rank among these
  RowPositions positions = {};                   ///< of this rank's tokens, for random numbers
  const SequencePlacement* placement = nullptr;  ///< ForwardContext::placement
  std::vector<std::int64_t> lengths = {};        ///< of all samples or sequences, no padding
  /// bool [tokens of this rank, 1]: those that no expert computes and nothing counts. Optional.
  at::Tensor padding = {};

  std::int64_t num_tokens() const { return num_positions * batch; }
  /// Returns the tokens of the whole microbatch without padding.
  std::int64_t total() const {
    return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  }
  /// Returns the tokens' rows [tokens of this rank, n] with zeros for padding.
  at::Tensor without_padding(const at::Tensor& rows) const {
    return padding.defined() ? rows.masked_fill(padding, 0) : rows;
  }
  /// Returns the number of tokens of the ranks before number `rank` of these.
  std::int64_t first_token_of(std::int64_t rank) const {
    return std::accumulate(tokens_of_ranks.begin(), tokens_of_ranks.begin() + rank,
                           std::int64_t{0});
  }
  std::int64_t first_token() const { return first_token_of(place); }
  /// Returns whether the positions of the ranks, one rank after another, are not in ascending
  /// order.
  bool is_reordered() const { return placement != nullptr && placement->order.defined(); }
  /// Returns the numbers of this rank's positions among those of all ranks, if is_reordered().
  at::Tensor positions_of_rank() const {
    return placement->order.narrow(0, first_token() / batch, num_positions);
  }
  /// Returns the samples, or the packed sequences, that the tokens belong to.
  TokenSamples samples() const {
    if (!positions.sequences.defined()) return {.count = batch};
    return {.count = std::ssize(placement->cu_seqlens) - 1, .of_token = positions.sequences};
  }
};

/// The arguments of the functions below.
struct BalancingInput {
  const MoeConfig& config;
  const Rank& rank;
  const RoutingSpan& span;
};

/// The gradients of a router's auxiliary losses, and the rank's parts of the losses' values.
struct RouterLosses {
  RouterLossGradients gradients;
  /// float64 [4]: aux_loss, seq_aux_loss, global_aux_loss and z_loss without their coefficients.
  /// The sum over tp-cp is the microbatch's loss.
  at::Tensor values;
};

/// What the auxiliary losses are computed from.
struct RouterLossArguments {
  const at::Tensor& logits;
  const RoutedTokens& routed;
  /// The experts of `routed` or, where a bias or groups changed the choice, those of the scores
  /// alone.
  const at::Tensor& counted;
  const at::Tensor& scale;  ///< the scalar gradient that the loss of one microbatch receives
};

/// Computes the gradients of all auxiliary losses.
///
///   aux_loss: coefficient · E · Σ_e f_e · P_e, where f_e is the share of the k·T choices of the
///     microbatch's T tokens that go to expert e, and P_e the mean of its normalized scores.
///   seq_aux_loss: the same for each sample, averaged. Packed sequences count in proportion to
///     their tokens.
///   global_aux_loss: f_e over the microbatches of all data-parallel ranks so far (Qiu et al.
///     2025). `global_counts` holds their sums, float64 [E + 1]: choices and tokens.
///   z_loss: coefficient · mean of (log Σ exp logits)².
///
/// Collective over tp-cp with a balancing loss, and over dp with global_aux_loss.
RouterLosses router_losses(const BalancingInput& input, const RouterLossArguments& arguments,
                           at::Tensor& global_counts);

/// Returns the logits after Sinkhorn's normalization over the experts and over the microbatch's
/// tokens, as Megatron Core computes it, in at most 1,000 iterations. Collective over tp-cp.
at::Tensor sinkhorn_scores(const BalancingInput& input, const at::Tensor& logits);

/// Drops the choices beyond the capacity of an expert, ⌈k·T/E · factor⌉ of the microbatch's T
/// tokens: those with the lowest probabilities, or the last ones. Of equal probabilities the
/// earlier token stays. Collective over tp-cp.
void drop_beyond_capacity(const BalancingInput& input, RoutedTokens& routed);

/// Returns an expert's capacity for `tokens` tokens.
std::int64_t expert_capacity(const MoeConfig& config, std::int64_t tokens);

/// Returns the number of choices of each expert in each sample that were not dropped, [samples, E]
/// float64.
at::Tensor count_choices(const at::Tensor& experts, std::int64_t num_experts,
                         const TokenSamples& samples);

}  // namespace megatron
