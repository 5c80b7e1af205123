// Computes the first microbatch of each data-parallel replica on the next replica too, and compares
// loss, ops and gradients bit for bit (--check-microbatch-across-dp-replicas-interval). Weights are
// the same there, and random numbers depend only on coordinates, so a difference means that one of
// the two ranks computes wrongly.
#pragma once

#include <string>
#include <vector>

#include "megatron/training/resilience/non_finite.h"

namespace megatron {

/// The numbers of one pass: bits of the loss and of each op's statistics, and a checksum of each
/// parameter's gradient.
struct PassResults {
  std::vector<std::string> names = {};
  std::vector<std::int64_t> bits = {};
};

/// Returns "the output of decoder.layers.3.mlp is the first of 12 of 80 results to differ"; "" when
/// all are equal. Both passes have the same names.
std::string first_difference(const PassResults& own, const std::vector<std::int64_t>& other_bits);

/// What a comparison over all replicas found. The texts are equal on all ranks.
struct PeerVerdict {
  std::string differences = {};  ///< a line for each pair of ranks; empty: none
  /// The microbatch of the previous replica, which has other results here if `is_here`.
  SuspectMicrobatch suspect = {};
};

/// Runs `batch`'s first microbatch here and that of the previous replica, and compares loss and
/// gradients with those there. When some differ, all run again with a record of every op, which
/// names the first that differs. Overwrites the gradients. The sequences must not be packed,
/// because packed ones have no common shape. Collective over the world.
PeerVerdict recompute_on_peers(const TrainStepContext& context, const TrainStepOptions& options,
                               const std::vector<Microbatch>& batch);

}  // namespace megatron
