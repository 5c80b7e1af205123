#include "megatron/datasets/sample_counts.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/data_config.h"
#include "megatron/config/data_phase.h"
#include "megatron/config/evaluation_plan.h"
#include "megatron/config/resolve.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/validate_settings.h"
#include "megatron/datasets/blend.h"
#include "megatron/datasets/encoder_identity.h"
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
  const TrainingConfig& training = *settings.training;
  const EvaluationPlan plan = evaluation_plan(training, data_parallel_size);
  const std::array<bool, 3> has_data = splits_with_data(*settings.data);
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

std::int64_t samples_of_train_epochs(const Settings& settings, const EpochCountOptions& options) {
  Settings counted = settings;
  resolve(counted);
  counted.data->blend_schedule.clear();  // an epoch does not depend on weights
  DatasetRequest request = run_dataset_request(counted, {std::nullopt, 0, 0});
  request.row_multiple = options.row_multiple;
  request.cache = options.cache;
  request.tokenizer.text = options.tokenizer;
  request.tokenizer.vocab_size = std::max<std::int64_t>(1, counted.model->vocab_size);
  return count_train_samples(*counted.data, request, *settings.training->train_epochs);
}

void set_run_length(Settings& settings, std::int64_t num_samples, std::int64_t data_parallel_size) {
  TrainingConfig& training = *settings.training;
  const NumMicrobatchesCalculator batches(training, data_parallel_size);
  const std::int64_t first_batch = batches.at(0).global_batch_size;
  if (num_samples < first_batch)
    throw UserError({"--train-epochs " + format("%g", *training.train_epochs),
                     "the training data then have " + std::to_string(num_samples) +
                         " samples, less than one global batch of " + std::to_string(first_batch),
                     "train for more epochs, or choose a smaller --global-batch-size"});
  const std::int64_t iterations = batches.iterations_for(num_samples);
  const bool by_samples = uses_sample_schedule(*settings.scheduler);
  training.train_iters = by_samples ? 0 : iterations;
  training.train_samples = by_samples ? num_samples : 0;
  Settings equivalent = settings;
  equivalent.training->train_epochs.reset();
  if (training.step_batch_size_schedule.empty())
    equivalent.training->global_batch_size = batches.final_batch_size();
  validate_run(equivalent).throw_if_any();
  training.train_iters = iterations;
  training.global_batch_size = batches.final_batch_size();
}

std::string epochs_line(const Settings& settings, std::int64_t num_samples) {
  const TrainingConfig& training = *settings.training;
  const std::int64_t taken =
      NumMicrobatchesCalculator(training).samples_after(training.train_iters);
  return "> --train-epochs " + format("%g", *training.train_epochs) + " is " +
         std::to_string(num_samples) + " samples of training data: training takes " +
         std::to_string(taken) + " in " + std::to_string(training.train_iters) + " iterations";
}

TokenizerIdentity tokenizer_identity(const TokenizerConfig& config) {
  TokenizerIdentity result;
  if (!config.tokenizer_model.empty()) result.path = config.tokenizer_model;
  if (config.vocab_size) result.arguments = {{"vocab_size", std::to_string(*config.vocab_size)}};
  return result;
}

DatasetRequest run_dataset_request(const Settings& settings,
                                   const std::array<std::optional<std::int64_t>, 3>& num_samples) {
  return {
      .sequence_length = settings.training->seq_length,
      .seed = settings.training->seed,
      .num_samples = num_samples,
      .train_schedule = settings.training->skip_train
                            ? BlendSchedule()
                            : train_blend_schedule(*settings.training, *settings.data),
      .repeats_train = true,
      .multiple_validation_sets = settings.training->multiple_validation_sets,
      .tokenizer = {.identity = tokenizer_identity(*settings.tokenizer),
                    .flags = encoder_flags(*settings.tokenizer),
                    .files = tokenizer_paths(*settings.tokenizer),
                    .chat = chat_files(*settings.tokenizer)},
      .kind = settings.data->task != FinetuneTask::none ? SampleKind::labelled : SampleKind::gpt};
}

void set_tokenizer(DatasetRequest& request, SampleKind kind, const Settings& settings,
                   const std::shared_ptr<const Tokenizer>& tokenizer) {
  request.tokenizer.vocab_size = tokenizer->vocab_size();
  request.tokenizer.eod = tokenizer->eod();
  request.tokenizer.pad = tokenizer->pad();
  request.tokenizer.text = tokenizer;
  if (request.kind == SampleKind::gpt) request.kind = kind;
  if (request.kind == SampleKind::gpt) return;
  const DataConfig& data = *settings.data;
  request.masked = masked_request(request.kind, data, tokenizer, data.vocab_extra_ids);
  request.masked.binary_head = settings.model->bert_binary_head;
  request.masked.decoder_sequence_length = data.decoder_seq_length;
  request.masked.num_classes = settings.model->num_classes;
  request.masked.num_tokentypes = settings.model->token_types();
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
