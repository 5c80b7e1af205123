// Saves and loads the state of a training run and prints Megatron's lines around it.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "megatron/training/loop/trainer.h"

namespace megatron {

/// Loads the weights from trainer.source. Also loads progress, optimizer state and schedule unless
/// flags or the kind of checkpoint exclude them.
void load_trainer(Trainer& trainer, std::ostream& out);

/// Saves the trainer at its current iteration into `folder`. The elapsed time is printed under the
/// name `timer` (a literal). UserError when the save fails.
void save_trainer(Trainer& trainer, SaveFolder& folder, std::string_view timer, std::ostream& out);

}  // namespace megatron
