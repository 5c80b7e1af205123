// Implements `megatron dataset plan`: builds the datasets of a run and prints for each source and
// split how many documents and tokens it has, and how many samples and epochs the run takes.
#include <cstdint>
#include <iostream>
#include <memory>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/base/words.h"
#include "megatron/cli/command.h"
#include "megatron/config/data_config.h"
#include "megatron/config/mesh_sizes.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/run_settings.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/datasets/builder.h"
#include "megatron/datasets/data_report.h"
#include "megatron/datasets/sample_counts.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {
namespace {

/// The number of samples of each split; nullopt: one epoch.
using SampleCounts = std::array<std::optional<std::int64_t>, 3>;

constexpr std::array<const char*, 3> kNames = {"train", "validation", "test"};

/// Takes --world-size N out of the words; 1 without it.
std::int64_t take_world_size(std::vector<std::string>& words) {
  std::int64_t size = 1;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string flag = "--world-size";
    if (words[i] != flag && !words[i].starts_with(flag + "=")) continue;
    const bool has_next = words[i] == flag && i + 1 < words.size();
    const std::string value =
        has_next ? words[i + 1] : words[i].substr(std::min(words[i].size(), flag.size() + 1));
    size = exact_number<std::int64_t>(value).value_or(0);
    if (size < 1) throw UserError({flag + " must be a number of ranks, at least 1", value, ""});
    const auto at = words.begin() + static_cast<std::ptrdiff_t>(i);
    words.erase(at, at + (has_next ? 2 : 1));
    --i;
  }
  return size;
}

std::int64_t row_multiple(const Settings& settings) {
  const std::int64_t context_ranks = settings.parallel->context_parallel_size;
  return context_ranks > 1 ? 2 * context_ranks : 1;
}

/// Returns the samples of a family without --task.
SampleKind sample_kind(const std::string& family) {
  return family == "bert" ? SampleKind::bert : family == "t5" ? SampleKind::t5 : SampleKind::gpt;
}

/// Returns the tokenizer of a run whose samples need one; null if they do not.
std::shared_ptr<const Tokenizer> open_tokenizer(const Settings& settings, SampleKind kind) {
  const DataConfig& data = *settings.data;
  if (kind == SampleKind::gpt && !data.fim.fim_data && !data.sft) return nullptr;
  return make_tokenizer(*settings.tokenizer);
}

Datasets build(const Settings& settings, const SampleCounts& samples, SampleKind kind,
               const std::shared_ptr<const Tokenizer>& tokenizer) {
  DatasetRequest request = run_dataset_request(settings, samples);
  request.cache = !settings.data->data_cache_path.empty();
  request.row_multiple = row_multiple(settings);
  request.packing_report_lines = 0;
  request.tokenizer.vocab_size = std::max<std::int64_t>(1, settings.model->vocab_size);
  if (tokenizer) set_tokenizer(request, kind, settings, tokenizer);
  return build_datasets(*settings.data, request);
}

/// Returns the samples of a split of which the run takes `count`, or one epoch.
std::int64_t sample_count(const std::optional<std::int64_t>& count,
                          const std::vector<SplitShare>& shares, const std::string& split) {
  if (count) return *count;
  std::int64_t samples = 0;
  for (const SplitShare& share : shares)
    if (share.split.starts_with(split)) samples += share.corpus.samples;
  return samples;
}

void print(const Settings& settings, const SampleCounts& samples,
           const std::vector<SplitShare>& shares, bool as_json) {
  if (as_json) {
    JsonText counts;
    for (std::size_t i = 0; i < kNames.size(); ++i)
      counts[kNames[i]] = sample_count(samples[i], shares, kNames[i]);
    std::cout << JsonText{{"seq_length", settings.training->seq_length},
                          {"train_iters", settings.training->train_iters},
                          {"samples", counts},
                          {"sources", data_json(shares)}}
                     .dump(2)
              << "\n";
    return;
  }
  std::cout << "samples of " << settings.training->seq_length << " tokens:";
  for (std::size_t i = 0; i < kNames.size(); ++i)
    std::cout << (i > 0 ? ", " : " ") << kNames[i] << " "
              << sample_count(samples[i], shares, kNames[i]);
  std::cout << "\n" << data_table(shares, DataColumns::with_documents);
}

}  // namespace

int run_dataset_plan(std::span<const std::string> args) {
  std::vector<std::string> words(args.begin(), args.end());
  const std::int64_t world_size = take_world_size(words);
  const RunConfig run = read_run(words, world_size);
  std::cerr << notes_text(run.parsed.notes);
  Settings settings = run.options.settings;
  const MeshSizes sizes = mesh_sizes(*settings.parallel);
  check_mesh_sizes(sizes, world_size).throw_if_any();
  const std::int64_t ranks = data_parallel_size(sizes, world_size);
  const SampleKind kind = sample_kind(run.options.model);
  const std::shared_ptr<const Tokenizer> tokenizer = open_tokenizer(settings, kind);
  if (settings.training->train_epochs && !settings.training->skip_train) {
    const std::int64_t in_epochs =
        samples_of_train_epochs(settings, {.tokenizer = tokenizer,
                                           .row_multiple = row_multiple(settings),
                                           .cache = !settings.data->data_cache_path.empty()});
    set_run_length(settings, in_epochs, ranks);
    if (!run.options.json) std::cout << epochs_line(settings, in_epochs) << "\n";
  }
  resolve(settings, ranks);
  const SampleCounts samples = train_valid_test_num_samples(settings, ranks);
  const Datasets datasets = build(settings, samples, kind, tokenizer);
  for (const std::string& warning : datasets.warnings) std::cerr << "note: " << warning << "\n";
  const std::vector<SplitShare> shares = split_shares(
      datasets, samples, validation_suffixes(*settings.training, datasets.valid_sets.size()));
  print(settings, samples, shares, run.options.json);
  return 0;
}

}  // namespace megatron
