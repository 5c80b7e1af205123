// Decides from a seed which faults happen to which rank of a run, and when.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

enum class FaultKind : std::uint8_t {
  kill,
  segfault,
  stop,
  pause,
  slow,
  full_disk,
  drop_link,
  corrupt_link,
  bit_flip
};

/// Returns the name as --kinds has it, such as "full-disk"; fault_kind() is the inverse.
const char* name_of(FaultKind kind);
FaultKind fault_kind(const std::string& name);

/// Returns whether the ranks must be started again after the fault.
bool ends_the_ranks(FaultKind kind);
/// Returns whether the fault breaks a connection between ranks. They are started again if they use
/// it.
bool breaks_a_link(FaultKind kind);

struct Fault {
  FaultKind kind = FaultKind::kill;
  std::int64_t rank = 0;
  std::int64_t iteration = 0;  ///< It happens after this step has ended for the first time, …
  double step_part = 0;        ///< … and this part of a step's time later.
  std::uint64_t choice = 0;    ///< of a link, or of a weight and its bit
};

struct ChaosPlanOptions {
  std::uint64_t seed = 1;
  std::int64_t num_faults = 1, num_ranks = 1, train_iters = 1;
  std::vector<FaultKind> kinds;  ///< not empty
};

/// Returns the faults in the order of time, at most one of each step. They are spread over all
/// steps but the last. There are fewer than wanted if there are not enough steps.
std::vector<Fault> plan_faults(const ChaosPlanOptions& options);

}  // namespace megatron
