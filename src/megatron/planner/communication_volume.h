// Formulas for the bytes that a rank sends in one step, by axis, and for the part of them that
// leaves its host. The layout search compares layouts by them.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/config/cp_comm_type.h"
#include "megatron/parallel/grid.h"
#include "megatron/planner/activation_memory.h"

namespace megatron {

struct Settings;
struct TransformerConfig;

/// Returns the bytes that one rank sends to dispatch the rows of one MoE layer to their experts, in
/// forward, without the rows that stay on the rank. With t = the rank's tokens and c = the width of
/// a row:
/// - alltoall: t·topk·c·(ep − 1)/ep over ep and t·topk·c·(etp − 1) to the other ranks of etp; flex
///   sends at most that
/// - allgather: t·c·(R − 1) with R = etp · ep
/// Combining sends the same number of bytes back, and backward repeats both.
double dispatch_bytes(const TransformerConfig& config, std::int64_t expert_parallel,
                      const ActivationLayout& layout);

/// Returns the bytes that one rank of cp sends for the attention of one layer and microbatch, in
/// forward and backward. With N ranks, kv = the bytes of its keys and values and q = those of its
/// queries:
/// - p2p: (N − 1)·kv in each pass, and in backward N times the gradients of keys and values in
///   float32
/// - all_gather: (N − 1)·kv in each pass
/// - a2a: (2·q + kv)·(N − 1)/N in each pass, where kv has at least one group for each rank: q, k
///   and v to other ranks and the result back
/// - a2a+p2p: a2a among the ranks that divide heads, and p2p among their groups
double context_bytes(const TransformerConfig& config, CpCommType exchange,
                     const ActivationLayout& layout);

/// Bytes that one rank sends per step, by axis. A layer all-reduces hidden rows over tp twice in
/// each pass (Shoeybi et al. 2019, arXiv 1909.08053, section 3), or gathers and scatters them as
/// often (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2.2). A ring all-gather or
/// reduce-scatter over n ranks sends (n − 1)/n of the whole, an all-reduce twice that (Patarasuk
/// and Yuan 2009). The distributed optimizer replaces the all-reduce of gradients by a
/// reduce-scatter, and gathers weights (Rajbhandari et al. 2019, arXiv 1910.02054, section 7).
struct CommunicationVolume {
  double tensor = 0;    ///< all-reduces, or all-gathers and reduce-scatters, of hidden rows over tp
  double pipeline = 0;  ///< hidden rows of each chunk to the next stage, their gradients back
  double context = 0;   ///< keys, values and their gradients, or heads, over cp
  double expert = 0;    ///< dispatch and combine, forward and backward
  double data = 0;      ///< gradients, and weights with the distributed optimizer
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
/// `num_microbatches` microbatches: `tensor`, `pipeline`, `context` and `expert`.
CommunicationVolume activation_volume(const Settings& settings, const ActivationLayout& layout,
                                      const std::vector<std::int64_t>& layers,
                                      std::int64_t num_microbatches);

}  // namespace megatron
