// Trains a tiny GPT on mock data, set up like `megatron pretrain`, for tests of whole runs.
#pragma once

#include <string>
#include <vector>

#include "megatron/config/run_settings.h"
#include "megatron/training/loop/trainer.h"

namespace megatron::small_run {

/// Flags: two layers of width 32 with dropout, Adam, 8 iterations with an evaluation every 2. The
/// flags in `more` come last and take precedence.
std::vector<std::string> flags(const std::vector<std::string>& more);

struct Outcome {
  int code = 0;
  std::string log;
  Trainer trainer;
};

/// Sets up a trainer and trains.
Outcome run(const std::vector<std::string>& more);

}  // namespace megatron::small_run
