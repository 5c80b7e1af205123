// The degrees of parallelism, and the checks that they fit the world size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/config/problems.h"

namespace megatron {

struct ParallelConfig;

/// The ranks of a host, unless a flag says otherwise.
inline constexpr std::int64_t kGpusPerHost = 8;

/// The number of ranks along each axis of the mesh. The remaining factor of the world size is data
/// parallel.
struct MeshSizes {
  std::int64_t tp = 1, cp = 1, ep = 1;
  std::optional<std::int64_t> etp;  ///< tensor-parallel ranks of an expert; none: tp
  std::int64_t pp = 1;
  std::string order = "tp-cp-ep-dp-pp";  ///< fastest axis first; axes of size 1 may be left out

  std::int64_t expert_tp() const { return etp.value_or(tp); }
};

MeshSizes mesh_sizes(const ParallelConfig& parallel);

/// Returns a problem for each reason why `world_size` ranks cannot be divided into these sizes. The
/// messages name Megatron's flags.
Problems check_mesh_sizes(const MeshSizes& sizes, std::int64_t world_size);

/// Returns world_size ÷ (tp · cp · pp). Requires sizes that check_mesh_sizes() accepts.
std::int64_t data_parallel_size(const MeshSizes& sizes, std::int64_t world_size);
/// Returns world_size ÷ (etp · ep · pp). Requires sizes that check_mesh_sizes() accepts.
std::int64_t expert_data_parallel_size(const MeshSizes& sizes, std::int64_t world_size);

}  // namespace megatron
