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
  /// Whether blocks of earlier requests may stand for the beginning of the prompt.
  bool reads_prefixes = true;
  /// Whether the outputs of all tokens of the prompt are wanted, such as to score it. Then all are
  /// computed, SchedulerOptions::max_step_outputs at a time.
  bool wants_all_outputs = false;
};

}  // namespace megatron
