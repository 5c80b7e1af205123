// What the scheduler must know of a request for text.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace megatron {

/// Identifies a sequence of tokens in a Scheduler. Numbers ascend and are never used again.
using SequenceId = std::int64_t;

struct Request {
  std::string name = "a prompt";      ///< in messages
  std::vector<std::int64_t> prompt;   ///< at least one token
  std::int64_t max_new_tokens = 128;  ///< 0: the prompt is only computed, such as to score it
  std::int64_t priority = 0;          ///< lower numbers are served first
  /// The time at which it ends unfinished, on the clock that Scheduler::plan() is given.
  double deadline_s = std::numeric_limits<double>::infinity();
  /// The first token of the prompt whose output is wanted, such as to score what follows; past its
  /// end: only the last one's is. Those from it on are computed, not found in blocks of earlier
  /// requests, SchedulerOptions::max_step_outputs at a time.
  std::int64_t first_output = std::numeric_limits<std::int64_t>::max();
};

}  // namespace megatron
