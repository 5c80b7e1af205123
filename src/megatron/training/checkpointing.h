// Saving and loading as a training run does it, with the lines that Megatron prints around them.
#pragma once

#include <iosfwd>

#include "megatron/training/trainer.h"

namespace megatron {

/// Saves the trainer at its iteration into --save.
void save_trainer(Trainer& trainer, std::ostream& out);

}  // namespace megatron
