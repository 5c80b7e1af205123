// Makes the Rank object for one rank of a mesh.
#pragma once

#include "megatron/parallel/communicators.h"
#include "megatron/parallel/mesh.h"
#include "megatron/parallel/rank.h"

namespace megatron {

struct RankOptions {
  c10::Device device{c10::kCPU};
  std::uint64_t seed = 1234;
  bool sequence_parallel = false;
};

/// Makes the rank that `communicators` belongs to, with every group of more than one rank.
/// Collective over the world.
Rank make_rank(const Mesh& mesh, Communicators& communicators, const RankOptions& options = {});

/// Makes rank `rank` without communicators, for code that only needs shapes.
Rank make_rank(const Mesh& mesh, std::int64_t rank, const RankOptions& options = {});

}  // namespace megatron
