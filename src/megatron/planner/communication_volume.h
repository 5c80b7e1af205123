// The bytes that a rank sends in one step, by axis, and the part of them that leaves its host. The
// layout search compares layouts by them.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/parallel/grid.h"
#include "megatron/planner/layer_trace.h"

namespace megatron {

struct Rank;
struct Settings;

/// Bytes that one rank sends per step, by axis. What layers send comes from their traces. The
/// distributed optimizer replaces the all-reduce of gradients by a reduce-scatter, and gathers
/// weights (Rajbhandari et al. 2019, arXiv 1910.02054, section 7).
struct CommunicationVolume {
  double tensor = 0;         ///< of hidden rows over tp
  double pipeline = 0;       ///< hidden rows of each chunk to the next stage, their gradients back
  double context = 0;        ///< keys, values and their gradients, or heads, over cp
  double expert = 0;         ///< dispatch and combine, forward and backward
  double data = 0;           ///< gradients, and weights with the distributed optimizer
  double expert_data = 0;    ///< the same of the weights of experts
  double between_hosts = 0;  ///< the part of all these that leaves the host
  double total() const { return tensor + context + pipeline + expert + data + expert_data; }
  double inside_host() const { return total() - between_hosts; }
};

/// Returns the part of what the ranks of `group` send to each other that leaves their hosts, on
/// average, if rank r is on host r ÷ gpus_per_host. Of n ranks on H > 1 hosts it is H/n, because H
/// links of a ring lead to another host. With `all_to_all`, ranks send equally much to each other
/// rank: it is the part of the pairs that are on two hosts.
double share_between_hosts(const RankList& group, std::int64_t gpus_per_host, bool all_to_all);

/// Returns the bytes that one rank with these layers (0-based) sends for the activations of
/// `num_microbatches` microbatches: `tensor`, `pipeline`, `context` and `expert`. `plan` says what
/// the layers of the model recompute; layers that are recomputed together count one by one, but
/// gather one distributed input.
CommunicationVolume activation_volume(const Settings& settings, const Rank& rank,
                                      const std::vector<std::int64_t>& layers,
                                      const ActivationPlan& plan, std::int64_t num_microbatches,
                                      LayerTraces& traces);

}  // namespace megatron
