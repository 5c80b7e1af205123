// What --profile leaves: a table for people, and a trace for ui.perfetto.dev.
#pragma once

#include <span>
#include <string>

#include "megatron/base/trace.h"
#include "megatron/training/observability/profile/op_recorder.h"

namespace megatron {

/// How fast the device can be, for the fraction of roofline: FLOP/s in the model's dtype, bytes/s
/// of its memory.
struct DevicePeak {
  double flops_per_second = 0, bytes_per_second = 0;
};

/// How often memory was asked for while the steps ran.
struct AllocationCounts {
  double tensors = 0;      ///< allocations of tensors on the CPU
  double system = 0;       ///< of them not served from what earlier tensors freed
  double heap_growth = 0;  ///< bytes by which the C library's heap grew
};

struct ProfileSummary {
  std::int64_t first_iteration = 0, num_steps = 1;
  DevicePeak peak;
  AllocationCounts memory;
};

/// Phases and modules by time, then operators by their own time: per step calls, ms in all and in
/// itself, share, GB, GFLOP, and the fraction of roofline: the least time that FLOPs or bytes would
/// need at the peak, over the time it took.
std::string profile_table(const ProfileSummary& head, std::span<const RecordedOp> ops);

/// What was recorded as the track of its rank (trace_json writes it); bytes, FLOPs and shapes as
/// args.
TraceTrack trace_track(std::span<const RecordedOp> ops, int rank);

}  // namespace megatron
