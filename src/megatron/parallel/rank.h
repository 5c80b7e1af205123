// A rank as an object: its position on every axis, its device and its seed. It is passed by
// reference; there is no global state.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <vector>

#include "megatron/parallel/axis.h"

namespace megatron {

class ActivityLog;

/// How GEMMs with tensor-parallel weights communicate over tp.
struct TensorParallelOptions {
  /// Starts the all-reduce of an input gradient before the weight gradient is computed.
  bool async_allreduce = true;
  /// Number of chunks of the sequence in which a GEMM and its collective overlap; 1: no overlap.
  std::int64_t overlap_chunks = 1;
};

struct Rank {
  std::int64_t index = 0;  ///< Rank in the world.
  Axis tp{"tp"}, cp{"cp"}, dp{"dp"}, pp{"pp"};
  Axis dp_cp{"dp-cp"};  ///< The ranks that hold the same weights.
  /// The ranks that share the tokens of a microbatch. Rank r of it has rank r / tp of cp and rank r
  /// mod tp of tp.
  Axis tp_cp{"tp-cp"};
  /// The levels of a2a+p2p: neighbours in cp, and the ranks with the same place in each such group.
  Axis cp_a2a{"cp-a2a"}, cp_p2p{"cp-p2p"};
  /// With hybrid context parallelism: the blocks of 2, 4, … neighbours in dp-cp that contain this
  /// rank, each of which may share a microbatch. Otherwise empty.
  std::vector<Axis> cp_blocks;
  Axis model{"tp-pp"};  ///< The ranks that hold one replica of the model.
  /// The ranks that compute a pass of inference together; with RankOptions::infers only.
  Axis replica{"tp-cp-pp"};
  Axis world{"world"};
  /// The axes of the experts: tensor, expert and data parallel. The last are the ranks that hold
  /// the same experts.
  Axis etp{"etp"}, ep{"ep"}, edp{"edp"};
  /// The ranks that together hold the experts of a layer, each a part. Rank r of it has rank r /
  /// etp of ep and rank r mod etp of etp.
  Axis etp_ep{"etp-ep"};
  Axis expert_model{"etp-ep-pp"};  ///< The ranks that hold one replica of all experts.
  bool sequence_parallel = false;  ///< Activations between GEMMs are split over tp by sequence.
  TensorParallelOptions tp_options;
  ActivityLog* activities = nullptr;  ///< of its groups (comm_slots.h), as long as they; null: none
  c10::Device device{c10::kCPU};
  std::uint64_t seed = 1234;  ///< Seed of every random site (base/philox.h).

  /// Returns the axis of `ranks` ranks that share a microbatch: cp, a block of dp-cp, or this rank
  /// alone. Throws InternalError when there is none of this size.
  const Axis& context_axis(std::int64_t ranks) const;
};

}  // namespace megatron
