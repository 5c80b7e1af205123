// The times of one step on one rank, by part of the step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace megatron {

enum class StepPart : std::uint8_t {
  data,
  forward,
  backward,
  optimizer,
  evaluation,
  checkpoint,
  other
};

inline constexpr std::array<const char*, 7> kStepPartNames{
    "data", "forward", "backward", "optimizer", "evaluation", "checkpoint", "other"};
inline constexpr std::size_t kNumStepParts = kStepPartNames.size();

/// The parts in which all ranks of a pipeline stage do the same work. In the others rank 0 has more
/// to do, and a checkpoint is not split evenly.
inline constexpr std::array kComparedParts{StepPart::data, StepPart::forward, StepPart::backward,
                                           StepPart::optimizer};

/// Seconds. A rank's own time is wall time without the time for which calls to other ranks blocked
/// it.
struct OwnTimes {
  std::array<double, kNumStepParts> own_s{};
  double waited_s = 0;    ///< blocked in calls to other ranks
  double cpu_s = 0;       ///< CPU time of the thread that trains, also in calls to other ranks
  double cpu_wait_s = 0;  ///< time for which this thread could run but had no CPU

  double own(StepPart part) const { return own_s[static_cast<std::size_t>(part)]; }
  double& own(StepPart part) { return own_s[static_cast<std::size_t>(part)]; }
};

}  // namespace megatron
