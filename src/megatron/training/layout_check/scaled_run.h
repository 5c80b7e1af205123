// Makes a run small enough for this machine without changing how its layout divides it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/config/run_settings.h"
#include "megatron/models/model_family.h"

namespace megatron {

/// A size of the run that scaling changed.
struct ScaledSize {
  std::string flag;  ///< "--hidden-size"
  std::int64_t from = 0, to = 0;
};

struct ScaledRun {
  RunConfig run;
  std::int64_t world_size = 1;
  std::vector<ScaledSize> sizes;
  /// What a check leaves out, because it changes numbers, files or places but no layout.
  std::vector<std::string> left_out;
};

/// Returns the smallest number in [least, value] that has the same greatest common divisor with
/// `modulus` as `value`: what divides the one divides the other into as many equal parts.
/// `least` ≤ `value`.
std::int64_t shrink(std::int64_t value, std::int64_t modulus, std::int64_t least);

/// Returns `run` with small shapes, mock data, one iteration in float64, and at most `max_ranks`
/// ranks where fewer data-parallel ranks suffice. Degrees of parallelism, schedules, sharding and
/// what divides what stay. `run` must be valid for `world_size` ranks.
ScaledRun scale_run(const RunConfig& run, std::int64_t world_size, std::int64_t max_ranks);

/// Removes the expressions of --train-only and --freeze that match no name of the scaled model,
/// which has fewer layers than the run's, and says so.
void leave_out_unmatched_names(ScaledRun& scaled, const ModelFamily& family);

/// Returns the settings of the same mathematics on one rank, without recomputation.
RunConfig on_one_rank(const RunConfig& scaled);

}  // namespace megatron
