// What a run requests of its data: how many samples of each split, in which order, and how its
// tokenizer is named in index caches.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "megatron/datasets/builder.h"
#include "megatron/datasets/unique_description.h"

namespace megatron {

struct Settings;
struct TokenizerConfig;
struct TrainingConfig;

/// Returns the number of samples of the train, validation and test splits, as Megatron sizes them.
/// Train covers the phase of the data that follows `iteration`, which is the whole run without
/// --phase-transition-iterations. Validation covers one evaluation per --eval-interval and one at
/// the end. Test covers one evaluation. A split is 0 when it has no share in --split and no data of
/// its own; validation and test are 0 without --eval-interval unless --full-validation or
/// --skip-train requests an evaluation. nullopt means one epoch (--full-validation).
std::array<std::optional<std::int64_t>, 3> train_valid_test_num_samples(
    const Settings& settings, std::int64_t data_parallel_size = 1, std::int64_t iteration = 0);

/// What counting the samples of conversations needs besides the settings.
struct EpochCountOptions {
  std::shared_ptr<const Tokenizer> tokenizer = {};  ///< null without --sft, --task
  std::int64_t row_multiple = 1;                    ///< as in DatasetRequest
  bool cache = true;                                ///< cache the lengths of packed conversations
};

/// Returns the number of training samples in --train-epochs (count_train_samples()) of settings
/// that are not resolved.
std::int64_t samples_of_train_epochs(const Settings& settings, const EpochCountOptions& options);

/// Sets the length of a run with --train-epochs, before resolve(). Its training data have
/// `num_samples` samples in all epochs. Sets --train-samples if the schedule of the learning rate
/// counts samples, else --train-iters. An incomplete last batch is left out, as with
/// --train-samples. Throws a UserError if there is not one batch, or if the settings now break a
/// rule of config/validate_settings.h.
void set_run_length(Settings& settings, std::int64_t num_samples, std::int64_t data_parallel_size);

/// Returns `> --train-epochs 2 is 37 samples of training data: training takes 36 in 18 iterations`.
/// Call it after set_run_length().
std::string epochs_line(const Settings& settings, std::int64_t num_samples);

/// Returns what identifies the tokenizer of a run in its index caches.
TokenizerIdentity tokenizer_identity(const TokenizerConfig& config);

/// Returns the request of a run for this many samples, without what only an opened tokenizer knows.
DatasetRequest run_dataset_request(const Settings& settings,
                                   const std::array<std::optional<std::int64_t>, 3>& num_samples);

/// Sets what an opened tokenizer knows, and the samples that a model trains on: those of --task, or
/// else `kind`.
void set_tokenizer(DatasetRequest& request, SampleKind kind, const Settings& settings,
                   const std::shared_ptr<const Tokenizer>& tokenizer);

/// Returns what follows "validation" in the name of each of `count` validation sets: "-NAME", or
/// "-0", "-1", … without --validation-set-names; nothing without --multiple-validation-sets. Throws
/// a UserError if the names are not as many.
std::vector<std::string> validation_suffixes(const TrainingConfig& training, std::size_t count);

}  // namespace megatron
