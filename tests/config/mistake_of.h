// Returns the error message for the flags of a run.
#pragma once

#include <string>
#include <vector>

#include "megatron/config/run_settings.h"
#include "support/message_of.h"

namespace megatron {

/// Returns the error message for these arguments of `megatron pretrain`, or "no error".
inline std::string mistake_of(const std::vector<std::string>& words, std::int64_t world_size = 1) {
  return message_of([&] { read_run(words, world_size); });
}

}  // namespace megatron
