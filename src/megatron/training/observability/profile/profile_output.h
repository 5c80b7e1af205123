// Formats the output of --profile: a table for people and a trace for ui.perfetto.dev.
#pragma once

#include <span>
#include <string>

#include "megatron/base/trace.h"
#include "megatron/training/observability/profile/op_recorder.h"

namespace megatron {

/// Peak rates of the device, for the fraction of roofline: FLOP/s in the model's dtype, and bytes/s
/// of memory bandwidth.
struct DevicePeak {
  double flops_per_second = 0, bytes_per_second = 0;
};

/// Number of memory allocations during the recorded steps.
struct AllocationCounts {
  double tensors = 0;      ///< allocations of CPU tensors
  double system = 0;       ///< those not served from cached memory
  double heap_growth = 0;  ///< bytes by which the C library's heap grew
};

struct ProfileSummary {
  std::int64_t first_iteration = 0, num_steps = 1;
  DevicePeak peak;
  AllocationCounts memory;
};

/// Returns the table: phases and modules by total time, then operators by self time. Columns, per
/// step: calls, total and self time in ms, share, GB, GFLOP, and the fraction of roofline, which is
/// the minimum time for the FLOPs or bytes at peak rate divided by the measured time.
std::string profile_table(const ProfileSummary& head, std::span<const RecordedOp> ops);

/// Converts the entries to the trace track of `rank` (trace_json writes it), with bytes, FLOPs and
/// shapes as args.
TraceTrack trace_track(std::span<const RecordedOp> ops, int rank);

}  // namespace megatron
