// From the data settings of a run to its three sources of microbatches.
#pragma once

#include <array>
#include <iosfwd>

#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// Samples wanted of train, valid and test, as Megatron sizes them: all of the training; an evaluation every --eval-interval and one at the
/// end; one test. None of a split without a share in --split or without data of its own, and no evaluation without --eval-interval.
std::array<std::int64_t, 3> wanted_samples(const Settings& settings);

/// Builds the datasets and sets trainer.train, valid and test to start at trainer.progress.
void set_up_data(Trainer& trainer, const Tokenizer& tokenizer, std::ostream& out);

}  // namespace megatron
