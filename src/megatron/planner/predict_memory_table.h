// Predicts the table that --log-memory measures: the memory of a rank by part at its peak.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/planner/memory_table.h"
#include "megatron/planner/rank_memory.h"

namespace megatron {

struct Settings;

/// What the memory of a process depends on besides the settings: the memory of one that trains a
/// model of almost no size, and the threads of a rank.
struct HostBaseline {
  double libraries = 0, allocator_slack = 0;
  double usual_slack = 0;  ///< what the allocators of a large model keep
  double host = 0;         ///< without workspaces
  double workspaces = 0;   ///< of all threads, which a larger model may need to be larger
  std::int64_t num_threads = 1;
};

/// Returns the memory that a rank shares with the others of its host, on which all ranks run. Every
/// group of n ranks that exchanges tensors has n times the slots of a rank, and a ring of messages
/// for each direction to a neighbour in a pipeline or in p2p context parallelism; a tensor smaller
/// than a slot or a ring touches its own size of them. Groups that exchange numbers only are not
/// counted. `sharing_stages` is that of RankMemory. On a GPU it is 0: what NCCL allocates is
/// unknown.
double communication_bytes(const Settings& settings, const Rank& rank,
                           const std::vector<std::vector<std::int64_t>>& sharing_stages = {});

/// Returns the memory of the host that depends on the model: the samples that are prepared ahead
/// (--num-workers), and the workspaces of the threads of the CPU's kernels.
double host_bytes(const Settings& settings, const ActivationLayout& layout, const StepShape& shape,
                  const HostBaseline& baseline);

/// Returns the table of a rank in a pipeline with `layout`, as predict_rank_memory(). The peak is
/// the sum of its parts.
MemoryTable predict_memory_table(const Settings& settings, LayerTraces& traces, const Rank& rank,
                                 const PipelineLayout& layout, std::int64_t num_microbatches,
                                 const HostBaseline& baseline);

}  // namespace megatron
