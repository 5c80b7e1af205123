// The attention of one layer over the ranks of context parallelism, as data: which blocks each rank
// computes and which messages it sends, in order. The steps are those of
// ops/context_parallel_attention.h; a simulator times them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/schedules/position_runs.h"
#include "megatron/schedules/simulate.h"

namespace megatron {

/// How the ranks exchange keys and values. Groups of `head_ranks` neighbours exchange positions for
/// heads, and the groups form a ring: p2p has groups of one rank, a2a has one group, a2a+p2p has
/// several of each.
struct ContextExchange {
  std::int64_t ranks = 1, head_ranks = 1;
  bool gathers = false;  ///< all_gather: every rank gathers all keys and values instead
  std::int64_t ring_ranks() const { return gathers ? 1 : ranks / head_ranks; }
};

/// The attention of one layer and microbatch, on one rank of tp.
struct ContextAttention {
  ContextExchange exchange;
  PositionMask mask;
  std::int64_t length = 0, samples = 1;  ///< of the whole sequence; a multiple of 2·ranks
  std::int64_t heads = 1, groups = 1, key_channels = 1, value_channels = 1;
  double element_bytes = 2;  ///< of queries, keys and values
  double sum_bytes = 4;      ///< of the gradients that travel around a ring

  /// Returns the bytes of `heads` heads of `channels` channels in the rows of a rank.
  double tensor_bytes(std::int64_t heads, std::int64_t channels) const {
    return static_cast<double>(length * samples * heads * channels) /
           static_cast<double>(exchange.ranks) * element_bytes;
  }
  /// Returns the bytes of a rank's keys and values.
  double key_value_bytes() const { return tensor_bytes(groups, key_channels + value_channels); }
};

enum class ContextStepKind : std::uint8_t {
  attention,
  send,          ///< starts to send to `peer`
  receive,       ///< starts to receive from `peer`
  wait_send,     ///< waits for the oldest send to `peer` that has not been waited for
  wait_receive,  ///< the same for a receive
  collective     ///< exchanges with the other ranks of the group
};

/// The attention of a run of queries to a run of keys.
struct AttentionBlock {
  PositionRun queries, keys;
  double pairs = 0;  ///< a query and a key that it sees; 0: the block is skipped
  bool is_full() const {
    return pairs == static_cast<double>(queries.count) * static_cast<double>(keys.count);
  }
};

struct ContextStep {
  ContextStepKind kind = ContextStepKind::attention;
  /// What a message or collective moves, as the counters of --log-comm name it. The name of a
  /// collective begins with its operation ("all_to_all queries"). Empty for attention.
  std::string what = {};
  std::int64_t peer = 0;  ///< rank of cp
  double bytes = 0;       ///< that this rank sends to others, or receives
  std::int64_t ring_step = 0;
  /// The place in the ring whose keys attention sees, and the blocks that it computes.
  std::int64_t source = 0;
  std::vector<AttentionBlock> blocks = {};
  double flops = 0;
};

/// The steps of each rank of cp, in order.
using ContextSteps = std::vector<std::vector<ContextStep>>;

/// Returns the place in a ring whose keys the rank at place `rank` has in step `step`: they travel
/// from each rank to the next.
inline std::int64_t ring_source(std::int64_t rank, std::int64_t step, std::int64_t ranks) {
  return (rank - step + ranks) % ranks;
}

/// Returns the steps of a forward pass. A pair of a query and a key costs 2·(d + dv) FLOPs for each
/// head.
ContextSteps forward_steps(const ContextAttention& attention);
/// Returns the steps of a backward pass. In a ring the gradients of keys and values follow these. A
/// pair costs 6·d + 4·dv FLOPs: scores, their gradients, and those of queries, keys and values.
ContextSteps backward_steps(const ContextAttention& attention);

/// The speed of ranks and links. Each pair of ranks has a link for the messages of a ring; what a
/// rank sends in a collective goes over one link.
struct ContextSpeed {
  double flops_per_s = 1, bytes_per_s = 1, latency_s = 0;
};

struct ContextSimulation {
  std::vector<std::vector<StepSpan>> spans;  ///< of every step of every rank
  /// For each rank the time of its attention, of its waits and collectives, and of its end.
  std::vector<double> busy_s, exposed_s, end_s;
  double makespan_s() const;
};

/// Seconds that each rank computes in each step of the ring. Each inner list has ring_ranks()
/// elements.
using RingStepSeconds = std::vector<std::vector<double>>;

/// Returns the times of attention at a speed.
RingStepSeconds attention_seconds(const ContextSteps& steps, double flops_per_s);

/// Runs the steps. A message is under way from the moment when both ranks have posted it and the
/// earlier messages of the pair have arrived. A collective begins when all ranks of its group have
/// come to it.
ContextSimulation simulate(const ContextSteps& steps, const ContextExchange& exchange,
                           const RingStepSeconds& attention_s, const ContextSpeed& links);

}  // namespace megatron
