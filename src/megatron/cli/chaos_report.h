// Judges a run with faults and reports what came of each fault.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/cli/chaos_run.h"

namespace megatron {

/// The run without faults and the one with them.
struct ChaosResult {
  std::uint64_t seed = 0;
  std::int64_t num_ranks = 1, train_iters = 1;
  std::int64_t num_wanted = 0;  ///< faults
  ChaosOutcome reference, broken;
  std::string checkpoint_difference;  ///< of the last checkpoints; "" if they are equal
};

/// Returns what is wrong with the run with faults, one sentence each; nothing if it is right.
std::vector<std::string> problems_of(const ChaosResult& result);

std::string chaos_text(const ChaosResult& result);
/// Returns one line of JSON.
std::string chaos_json(const ChaosResult& result);

}  // namespace megatron
