// Makes the Rank object for one rank of a mesh.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "megatron/parallel/communicators.h"
#include "megatron/parallel/mesh.h"

namespace megatron {

struct Rank;

struct RankOptions {
  c10::Device device{c10::kCPU};
  std::uint64_t seed = 1234;
  bool sequence_parallel = false;
  /// Neighbours in cp that form a group of a2a+p2p (Rank::cp_a2a); a divisor of cp.
  std::int64_t cp_a2a_size = 1;
  bool hybrid_cp = false;  ///< make Rank::cp_blocks
  bool infers = false;     ///< make Rank::replica
};

/// Makes the rank that `communicators` belongs to, with every group of more than one rank.
/// Collective over the world.
Rank make_rank(const Mesh& mesh, Communicators& communicators, const RankOptions& options = {});

/// Makes rank `rank` without communicators, for code that only needs shapes.
Rank make_rank(const Mesh& mesh, std::int64_t rank, const RankOptions& options = {});

}  // namespace megatron
