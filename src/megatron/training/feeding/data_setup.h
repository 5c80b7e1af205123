// The datasets of a run: how many samples each split needs, and where each one starts.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <optional>

#include "megatron/tokenizers/tokenizer.h"
#include "megatron/training/loop/trainer.h"

namespace megatron {

/// Samples of train, valid and test, as Megatron sizes them: all of the training; an evaluation
/// every --eval-interval and one at the end; one test. None of a split without a share in --split
/// or without data of its own, and no evaluation without --eval-interval unless
/// --full-validation or --skip-train asks for one. Nothing: one epoch (--full-validation).
std::array<std::optional<std::int64_t>, 3> train_valid_test_num_samples(
    const Settings& settings, std::int64_t data_parallel_size = 1);

/// Builds the datasets, sets trainer.train to start at trainer.progress, and trainer.valid and
/// test.
void build_train_valid_test_data(Trainer& trainer, const Tokenizer& tokenizer, std::ostream& out);

}  // namespace megatron
