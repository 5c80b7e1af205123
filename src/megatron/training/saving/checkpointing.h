// Saving and loading as a training run does it, with the lines that Megatron prints around them.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "megatron/training/loop/trainer.h"

namespace megatron {

/// Fills weights and, unless the flags or the kind of source forbid it, progress, optimizer and
/// schedule from trainer.source.
void load_trainer(Trainer& trainer, std::ostream& out);

/// Saves the trainer at its iteration into `folder`; `timer` (a literal) names the time printed for
/// it. UserError when that fails.
void save_trainer(Trainer& trainer, SaveFolder& folder, std::string_view timer, std::ostream& out);

}  // namespace megatron
