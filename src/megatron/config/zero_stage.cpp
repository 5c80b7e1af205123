#include "megatron/config/zero_stage.h"

#include <algorithm>
#include <array>
#include <string>

#include "megatron/config/parallel_config.h"

namespace megatron {

int stage_of_strategy(const std::string& strategy) {
  static constexpr std::array kStrategies{"no_shard", "optim", "optim_grads", "optim_grads_params"};
  const auto found = std::ranges::find(kStrategies, strategy);
  return found == kStrategies.end() ? -1 : static_cast<int>(found - kStrategies.begin());
}

int zero_stage(const ParallelConfig& config) {
  if (config.zero_stage) return static_cast<int>(*config.zero_stage);
  if (!config.data_parallel_sharding_strategy.empty())
    return std::max(0, stage_of_strategy(config.data_parallel_sharding_strategy));
  if (config.use_megatron_fsdp) return 3;
  if (config.use_torch_fsdp2) return config.torch_fsdp2_reshard_after_forward ? 3 : 2;
  return config.use_distributed_optimizer ? 1 : 0;
}

}  // namespace megatron
