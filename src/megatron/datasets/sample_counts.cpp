#include "megatron/datasets/sample_counts.h"

#include "megatron/base/error.h"
#include "megatron/config/data_phase.h"
#include "megatron/config/evaluation_plan.h"
#include "megatron/config/resolve.h"
#include "megatron/datasets/blend.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
namespace {

/// Returns which splits have data: a share of the common blend, or their own paths.
std::array<bool, 3> splits_with_data(const DataConfig& data) {
  const DataSources sources = data_sources(data);
  std::array<bool, 3> result{true, true, true};
  for (std::size_t i = 0; i < 3; ++i) {
    if (sources.blend_per_split) result[i] = (*sources.blend_per_split)[i].has_value();
    if (sources.blend) result[i] = (*split_weights(data.split))[i] > 0;
  }
  return result;
}

}  // namespace

std::array<std::optional<std::int64_t>, 3> train_valid_test_num_samples(
    const Settings& settings, std::int64_t data_parallel_size, std::int64_t iteration) {
  const TrainingConfig& training = settings.training;
  const EvaluationPlan plan = evaluation_plan(training, data_parallel_size);
  const std::array<bool, 3> has_data = splits_with_data(settings.data);
  const bool at_end = plan.interval > 0 || training.full_validation || training.skip_train;
  const std::int64_t evaluations =
      training.skip_train ? 1 : plan.evaluations_until(training.train_iters) + (at_end ? 1 : 0);
  std::array<std::optional<std::int64_t>, 3> samples{
      training.skip_train ? 0 : data_phase(training, iteration).num_samples,
      has_data[1] ? evaluations * plan.num_samples() : 0,
      has_data[2] && at_end ? plan.num_samples() : 0};
  if (training.full_validation && has_data[1]) samples[1].reset();
  return samples;
}

TokenizerIdentity tokenizer_identity(const TokenizerConfig& config) {
  TokenizerIdentity result;
  if (!config.tokenizer_model.empty()) result.path = config.tokenizer_model;
  if (config.vocab_size) result.arguments = {{"vocab_size", std::to_string(*config.vocab_size)}};
  return result;
}

DatasetRequest run_dataset_request(const Settings& settings,
                                   const std::array<std::optional<std::int64_t>, 3>& num_samples) {
  return {.sequence_length = settings.training.seq_length,
          .seed = settings.training.seed,
          .num_samples = num_samples,
          .multiple_validation_sets = settings.training.multiple_validation_sets,
          .tokenizer = {.identity = tokenizer_identity(settings.tokenizer),
                        .folder = tokenizer_folder(settings.tokenizer)}};
}

std::vector<std::string> validation_suffixes(const TrainingConfig& training, std::size_t count) {
  const std::vector<std::string>& names = training.validation_set_names;
  if (count > 0 && !names.empty() && names.size() != count)
    throw UserError({"--validation-set-names gives " + std::to_string(names.size()) + " names",
                     "there are " + std::to_string(count) + " validation sets",
                     "give one name for each prefix of --valid-data-path"});
  std::vector<std::string> suffixes(count);
  for (std::size_t i = 0; i < count && training.multiple_validation_sets; ++i)
    suffixes[i] = "-" + (names.empty() ? std::to_string(i) : names[i]);
  return suffixes;
}

}  // namespace megatron
