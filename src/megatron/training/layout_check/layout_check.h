// Implements `megatron check`: runs the first step of a scaled run on its mesh, with every rank a
// thread of this process, and compares all its values with the same step on one rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "megatron/parallel/communicators.h"
#include "megatron/parallel/mesh.h"
#include "megatron/training/layout_check/compared_step.h"
#include "megatron/training/layout_check/scaled_run.h"
#include "megatron/training/loop/trainer.h"

namespace megatron {

struct LayoutCheckOptions {
  /// Largest relative difference that rounding in float64 explains.
  double tolerance = 1e-9;
  /// Limit of every collective. A rank that waits longer is a fault too.
  std::chrono::milliseconds timeout{120'000};
  /// Replaces the communicators of a rank, changes its run or its trainer before the step: tests
  /// plant faults with these.
  std::function<std::unique_ptr<Communicators>(Communicators&)> communicators = {};
  std::function<void(std::int64_t rank, RunConfig& run)> settings = {};
  std::function<void(Trainer& trainer)> trainer = {};
  const ModelFamilies* families = &library_families();
};

/// What differs, over all ranks.
struct LayoutCheckResult {
  std::int64_t world_size = 1;
  std::vector<ModelUnit> units = {};  ///< of the whole model
  /// In the order in which a step computes the values; those of one value by rank.
  std::vector<FoundDifference> differences;
  std::int64_t num_compared = 0;
  double largest_relative = 0;  ///< of the values that agree
  std::set<std::string> not_compared;
  double loss = 0;
  double seconds = 0;

  std::vector<Gap> gaps;  ///< what no rank has, although one rank alone has it

  bool agrees() const { return differences.empty() && gaps.empty(); }
};

/// Throws what a rank throws: a UserError for settings that do not fit, a CommError when ranks make
/// different calls or one does not come.
LayoutCheckResult check_layout(const ScaledRun& scaled, const LayoutCheckOptions& options = {});

/// Returns the coordinates that distinguish the ranks with a difference: "tp 1", "dp 0, 2 and
/// pp 1", or "all ranks".
std::string distinguishing_axes(const Mesh& mesh, const std::vector<std::int64_t>& ranks);

/// Returns the scaled sizes, a table of the parts of the model with their largest relative
/// differences, the first value that differs, and the verdict.
std::string check_report(const ScaledRun& scaled, const LayoutCheckResult& result);

/// Returns the same as one JSON object.
std::string check_json(const ScaledRun& scaled, const LayoutCheckResult& result);

}  // namespace megatron
