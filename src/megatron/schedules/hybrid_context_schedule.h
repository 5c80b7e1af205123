// Assigns the sequences of a step to ranks when sequences differ in length ("hybrid context
// parallelism" of Megatron Core): a short sequence stays on one rank, a long one is divided over 2,
// 4, … neighbours. Each microbatch of a rank packs several sequences up to a number of rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/schedules/hybrid_context_summary.h"

namespace megatron {

/// The time of a sequence, in any unit.
struct SequenceCost {
  double per_token = 1;          ///< GEMMs and everything else that is linear in the length
  double per_squared_token = 0;  ///< attention
  /// Sending one token's keys and values to another rank. Hidden behind attention where that takes
  /// longer.
  double per_sent_token = 0;

  /// Returns the time of each of `ranks` ranks that share a sequence, without padding.
  double of(std::int64_t length, std::int64_t ranks) const;
};

struct HybridContextRequest {
  std::vector<std::int64_t> lengths;  ///< of the sequences; each at least 1
  std::int64_t num_ranks = 1;
  std::int64_t max_rows_per_rank = 1;  ///< of one microbatch on one rank
  /// The rows of a sequence on a rank are a multiple of this (of tp with sequence parallelism).
  std::int64_t row_multiple = 1;
  SequenceCost cost = {};

  /// Returns the time of each of `ranks` ranks that share a sequence of `length` tokens.
  double cost_of(std::int64_t length, std::int64_t ranks) const;
};

/// Sequences that neighbouring ranks compute together in one microbatch.
struct ContextMicrobatch {
  std::int64_t first_rank = 0, num_ranks = 1;
  std::vector<std::int64_t> sequences = {};  ///< ascending indices; empty: the rank waits
  bool operator==(const ContextMicrobatch&) const = default;
};

struct HybridContextSchedule {
  /// [rank][microbatch]; every rank has equally many microbatches. The ranks of a block hold the
  /// same entry at the same place, so the order of their collectives is the same.
  std::vector<std::vector<ContextMicrobatch>> ranks;

  std::int64_t num_microbatches() const { return static_cast<std::int64_t>(ranks.front().size()); }
};

/// Returns the largest number of neighbours that may share a sequence: the largest power of two
/// that divides the number of ranks.
std::int64_t largest_context_block(std::int64_t num_ranks);

/// Returns the rows of a sequence with the padding at its end that lets `ranks` ranks hold equally
/// many of them: two chunks of each rank have the same length.
std::int64_t padded_length(std::int64_t length, std::int64_t ranks, std::int64_t row_multiple);

/// Returns the fewest ranks that can hold a sequence, or 0 when the largest block cannot.
std::int64_t fewest_ranks(std::int64_t length, const HybridContextRequest& request);

/// Makes a schedule in which the most loaded rank has little more work than the mean: longest
/// processing time first on each size of block (Graham 1969), after which sequences on the most
/// loaded ranks are divided further while that shortens the step. Deterministic. InternalError when
/// a sequence does not fit.
HybridContextSchedule make_hybrid_context_schedule(const HybridContextRequest& request);

/// Returns what is wrong with a schedule: a sequence that is missing or computed twice, too many
/// rows, blocks that disagree. Empty when it is valid.
std::string check_hybrid_context_schedule(const HybridContextSchedule& schedule,
                                          const HybridContextRequest& request);

/// The outcome of a simulated step.
struct HybridContextTimes {
  double step = 0;                     ///< until the last rank has finished
  std::vector<double> busy = {};       ///< of each rank
  std::int64_t rows = 0, padding = 0;  ///< of all microbatches
  /// Returns how much longer the step takes than a rank works on average, as a fraction.
  double imbalance() const;
};

/// Simulates a step: the ranks of a block start a microbatch together, when the last of them is
/// ready.
HybridContextTimes simulate(const HybridContextSchedule& schedule,
                            const HybridContextRequest& request);

HybridContextSummary summary_of(const HybridContextSchedule& schedule,
                                const HybridContextRequest& request);

}  // namespace megatron
