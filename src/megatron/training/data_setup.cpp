#include "megatron/training/data_setup.h"

#include <ostream>

#include "megatron/config/resolve.h"
#include "megatron/datasets/blend.h"
#include "megatron/datasets/builder.h"
#include "megatron/training/dataset_source.h"
#include "megatron/training/startup_report.h"

namespace megatron {
namespace {

/// Which splits have data by the settings: a share of the common data, or a path of their own.
std::array<bool, 3> splits_with_data(const DataConfig& data) {
  const DataSources sources = data_sources(data);
  std::array<bool, 3> result{true, true, true};
  for (std::size_t i = 0; i < 3; ++i) {
    if (sources.blend_per_split) result[i] = (*sources.blend_per_split)[i].has_value();
    if (sources.blend) result[i] = (*split_shares(data.split))[i] > 0;
  }
  return result;
}

TokenizerIdentity identity(const TokenizerConfig& config) {
  TokenizerIdentity result;
  if (!config.tokenizer_model.empty()) result.path = config.tokenizer_model;
  if (config.vocab_size) result.arguments = {{"vocab_size", std::to_string(*config.vocab_size)}};
  return result;
}

SamplerKind sampler_kind(const DataConfig& config) { return config.dataloader_type == "cyclic" ? SamplerKind::cyclic : SamplerKind::single; }

}  // namespace

std::array<std::int64_t, 3> wanted_samples(const Settings& settings) {
  const TrainingConfig& training = settings.training;
  const std::array<bool, 3> has_data = splits_with_data(settings.data);
  const std::int64_t evaluation = training.eval_interval ? training.eval_iters * training.global_batch_size : 0;
  const std::int64_t evaluations = training.eval_interval ? training.train_iters / *training.eval_interval + 1 : 0;
  const std::int64_t train = training.train_samples > 0 ? training.train_samples : training.train_iters * training.global_batch_size;
  return {train, has_data[1] ? evaluations * evaluation : 0, has_data[2] ? evaluation : 0};
}

void set_up_data(Trainer& trainer, const Tokenizer& tokenizer, std::ostream& out) {
  const Settings& settings = trainer.settings;
  const std::array<std::int64_t, 3> samples = wanted_samples(settings);
  out << dataset_sizes_block(samples) << std::endl;
  DatasetRequest request{
      .sequence_length = settings.training.seq_length,
      .seed = settings.training.seed,
      .num_samples = {samples[0], samples[1], samples[2]},
      .tokenizer = {.vocab_size = tokenizer.vocab_size(), .eod = tokenizer.eod(), .pad = tokenizer.pad(), .identity = identity(settings.tokenizer)}};
  const Datasets datasets = build_datasets(settings.data, request);
  for (const std::string& warning : datasets.warnings) out << "WARNING: " << warning << std::endl;
  const auto source = [&](std::size_t split, std::int64_t first_sample) -> std::unique_ptr<MicrobatchSource> {
    if (samples[split] == 0 || !datasets.splits[split]) return nullptr;
    return make_dataset_source(datasets.splits[split], {.loader = {.sampler = {.kind = sampler_kind(settings.data),
                                                                               .consumed_samples = first_sample,
                                                                               .micro_batch_size = settings.training.micro_batch_size},
                                                                   .workers = settings.data.num_workers,
                                                                   .vocab_size = settings.model.vocab_size},
                                                        .document_masks = settings.data.reset_attention_mask});
  };
  trainer.train = source(0, trainer.progress.consumed_train_samples);
  trainer.valid = source(1, trainer.progress.consumed_valid_samples);
  trainer.test = source(2, 0);
  out << "> finished creating GPT datasets ..." << std::endl;
}

}  // namespace megatron
