// The tokens of a microbatch that a rank routes: a run of positions of every sample.
#pragma once

#include <cstdint>
#include <iterator>
#include <numeric>
#include <vector>

#include "megatron/ops/random_site.h"

namespace megatron {

/// Tokens are numbered position by position, samples inside: token = position · batch + sample.
/// With tensor parallelism the ranks of tp route successive runs of positions.
struct TokenSpan {
  std::int64_t batch = 1;                     ///< samples
  std::int64_t num_positions = 0;             ///< of this rank
  std::vector<std::int64_t> tokens_of_ranks;  ///< tokens of each rank of tp
  RowPositions positions = {};                ///< of this rank's tokens, for random numbers

  std::int64_t num_tokens() const { return num_positions * batch; }
  /// Returns the tokens of the whole microbatch.
  std::int64_t total() const { return first_token_of(std::ssize(tokens_of_ranks)); }
  /// Returns the number of tokens of the ranks of tp before `rank`.
  std::int64_t first_token_of(std::int64_t rank) const {
    return std::accumulate(tokens_of_ranks.begin(), tokens_of_ranks.begin() + rank,
                           std::int64_t{0});
  }
};

}  // namespace megatron
