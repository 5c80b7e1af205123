// What data-parallel ranks divide among them, as one number: the stages of ZeRO (Rajbhandari et al.
// 2020), from the flags of Megatron-LM, PyTorch and DeepSpeed.
#pragma once

#include <string>

namespace megatron {

struct ParallelConfig;

/// Returns 0: nothing, 1: optimizer state, 2: and gradients, 3: and weights.
int zero_stage(const ParallelConfig& config);

/// Returns the stage that a value of --data-parallel-sharding-strategy names; -1 for another text.
int stage_of_strategy(const std::string& strategy);

}  // namespace megatron
