// The tokens of a microbatch that a rank routes: some positions of every sample.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

#include "megatron/ops/random_site.h"
#include "megatron/ops/sequence_placement.h"

namespace megatron {

/// The sample, or the packed sequence, of each token of a rank.
struct TokenSamples {
  std::int64_t count = 1;    ///< samples or packed sequences of the microbatch
  at::Tensor of_token = {};  ///< int64 [tokens of the rank]; undefined: token t is of t mod count
};

/// Tokens are numbered position by position, samples inside: token = position · batch + sample. The
/// ranks of tp-cp route them together: those of a rank of cp (`placement`), of which the ranks of
/// tp take successive runs.
struct RoutingSpan {
  std::int64_t batch = 1;                        ///< samples; 1 with packed sequences
  std::int64_t num_positions = 0;                ///< of this rank
  std::vector<std::int64_t> tokens_of_ranks;     ///< tokens of each rank of tp-cp
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
  /// Returns the number of tokens of the ranks of tp-cp before `rank`.
  std::int64_t first_token_of(std::int64_t rank) const {
    return std::accumulate(tokens_of_ranks.begin(), tokens_of_ranks.begin() + rank,
                           std::int64_t{0});
  }
  /// Returns the samples, or the packed sequences, that the tokens belong to.
  TokenSamples samples() const {
    if (!positions.sequences.defined()) return {.count = batch};
    return {.count = std::ssize(placement->cu_seqlens) - 1, .of_token = positions.sequences};
  }
};

}  // namespace megatron
