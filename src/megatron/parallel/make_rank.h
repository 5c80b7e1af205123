// A rank of a mesh, with its communicators.
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

/// The rank that `communicators` speak for. Groups of more than one rank are made here, each once.
/// Collective over the world.
Rank make_rank(const Mesh& mesh, Communicators& communicators, const RankOptions& options = {});

/// The same place without communicators: where only shapes matter.
Rank make_rank(const Mesh& mesh, std::int64_t rank, const RankOptions& options = {});

}  // namespace megatron
