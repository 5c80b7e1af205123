// Megatron's training loop: step, log, evaluate, save, stop.
#pragma once

#include <iosfwd>

#include "megatron/training/loop/trainer.h"

namespace megatron {

/// Trains until all iterations are done or the run is asked to stop (SIGTERM, SIGINT,
/// --exit-interval, --exit-duration-in-mins), and saves checkpoints on the way. Log lines go to
/// `out`. Returns the exit code: 0, or 128 + the signal. Throws NonFiniteError when training
/// diverges.
int train(Trainer& trainer, std::ostream& out);

}  // namespace megatron
