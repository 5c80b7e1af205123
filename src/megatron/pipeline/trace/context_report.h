// Compares what the ranks of context parallelism waited for in the traced iterations with the
// simulation of their steps (schedules/context_exchange.h), and draws both in the trace. Pure
// functions.
#pragma once

#include <string>
#include <vector>

#include "megatron/base/trace.h"
#include "megatron/config/context_layers.h"
#include "megatron/pipeline/trace/rank_trace.h"

namespace megatron {

/// The steps of one pass through a ring, in order.
using RingPass = std::vector<const RingStep*>;

/// Returns the passes of one direction in order. Each begins with step 0.
std::vector<RingPass> ring_passes(const std::vector<RingStep>& steps, bool is_backward);

/// Seconds of one rank in one iteration, averaged over the traced iterations.
struct ContextTimes {
  std::int64_t rank = 0, cp = 0;  ///< of the world, and of cp
  double attention_s = 0;         ///< of the steps of rings
  double exposed_s = 0;           ///< waits for keys, values, queries and their gradients
  /// The same in a simulation of each pass with the measured times of attention and link, in which
  /// all ranks begin a pass at the same time.
  double simulated_exposed_s = 0;
};

struct ContextReport {
  std::vector<ContextTimes> ranks;  ///< of the world
  LinkSpeed link;                   ///< median of the ranks
  double message_bytes = 0;         ///< keys and values of a rank
};

/// Makes the report. `layers` describes all layers of the model over cp, which has several ranks.
/// `ranks` holds every rank of the world in order, all with the same iterations, at least one.
ContextReport context_report(const std::vector<RankTrace>& ranks,
                             const std::vector<ContextLayers>& layers);

/// Formats the report as a table without a newline at the end.
std::string context_table(const ContextReport& report);

/// Returns the steps of rings and all waits for other ranks, except those for pipeline stages, as
/// tracks from number `thread` on.
std::vector<TraceTrack> activity_tracks(const RankTrace& rank, std::int64_t thread);

}  // namespace megatron
