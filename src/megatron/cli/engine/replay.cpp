// Implements `megatron replay`: runs a saved microbatch again and prints the norms of every op.
#include "megatron/training/resilience/diagnosis/replay.h"

#include <iostream>

#include "megatron/cli/engine/engine.h"

namespace megatron {

int run_replay(std::span<const std::string> args, const ModelFamilies& families) {
  const ReplayOptions options = read_replay_options(args);
  const Replay result = replay(options, families);
  if (options.json)
    std::cout << replay_json(result).dump() << std::endl;
  else
    std::cout << replay_table(result) << std::flush;
  return 0;
}

}  // namespace megatron
