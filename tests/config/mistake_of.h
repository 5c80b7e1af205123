// Returns the error message for the flags of a run.
#pragma once

#include <string>
#include <vector>

#include "megatron/config/run_settings.h"

namespace megatron {

/// Returns the error message for these arguments of `megatron pretrain`, or "accepted".
inline std::string mistake_of(const std::vector<std::string>& words, std::int64_t world_size = 1) {
  try {
    read_run(words, world_size);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace megatron
