// `megatron pretrain`: trains a model with Megatron-LM's flags.
#include <iostream>

#include "megatron/cli/engine/engine.h"
#include "megatron/config/run_settings.h"
#include "megatron/training/non_finite.h"
#include "megatron/training/setup.h"
#include "megatron/training/train_loop.h"

namespace megatron {

int run_pretrain(std::span<const std::string> args) {
  const Run run = read_run(args);
  Trainer trainer = set_up(run, std::cout);
  try {
    return train(trainer, std::cout);
  } catch (const NonFiniteError& error) {
    std::cout.flush();
    std::cerr << "megatron pretrain: error: " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace megatron
