#include "megatron/datasets/builder.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/data_config.h"
#include "megatron/datasets/blend.h"
#include "megatron/datasets/blended_dataset.h"
#include "megatron/datasets/gpt_dataset.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/labelled_texts.h"
#include "megatron/datasets/mock_source.h"
#include "megatron/datasets/packed_gpt_dataset.h"
#include "megatron/datasets/parallel_for.h"
#include "megatron/datasets/sft_dataset.h"

namespace megatron {
namespace {

using Sizes = std::array<std::optional<std::int64_t>, 3>;
constexpr const char *kDefaultSplit = "969, 30, 1", *kMockSplit = "1,1,1";  ///< Megatron's

using SplitDatasets = std::array<std::shared_ptr<const SourceDataset>, 3>;

class Builder {
 public:
  Builder(const DataConfig& config, const DatasetRequest& request)
      : config_(config), request_(request) {
    const DataTokenizer& tokenizer = request.tokenizer;
    const bool ambiguous = tokenizer.pad == tokenizer.eod && !config.allow_ambiguous_pad_tokens;
    options_ = {
        .sequence_length = request.sequence_length,
        .seed = request.seed,
        .cache_folder = config.data_cache_path,
        .cache = request.cache,
        .reset_position_ids = config.reset_position_ids,
        .reset_attention_mask = config.reset_attention_mask,
        .eod_mask_loss = config.eod_mask_loss,
        .inter_document_masking = config.dataloader_inter_document_masking,
        .drop_last_partial_validation_sequence = request.drop_last_partial_validation_sequence,
        .eod = tokenizer.eod,
        .pad = ambiguous ? -1 : tokenizer.pad,
        .tokenizer = tokenizer.identity,
        .masked = request.masked};
    if (config.fim.fim_data)
      options_.fim = std::make_shared<const FillInTheMiddle>(config.fim, tokenizer.text);
    if (config.sft)
      prompt_format_ = std::make_shared<const PromptFormat>(config.sft_tokenizer_prompt_format,
                                                            tokenizer.text, tokenizer.chat);
    if (request.kind == SampleKind::labelled) {
      labelled_ = read_labelled_data(config);
      add_warnings(labelled_.warnings);
    }
  }

  Datasets build() {
    for (const auto& wanted : request_.num_samples) {
      if (wanted && *wanted < 0)
        throw UserError(
            {"the number of samples of a split must not be negative", std::to_string(*wanted), ""});
    }
    const DataSources sources = data_sources(config_);
    if (sources.is_mock()) {
      build_mock();
    } else if (sources.blend) {
      build_blend(*sources.blend, divide_by(config_.split.empty() ? kDefaultSplit : config_.split),
                  /*plain_when_single=*/!sources.blend->weights);
    } else {
      for (const Split split : kSplits) {
        const auto index = static_cast<std::size_t>(split);
        const auto& blend = (*sources.blend_per_split)[index];
        SplitMatrix only;
        only[index] = {0.0, 1.0};
        if (!blend) continue;
        if (split == Split::valid && request_.multiple_validation_sets) {
          build_validation_sets(*blend, only);
        } else {
          build_blend(*blend, only, /*plain_when_single=*/blend->prefixes.size() == 1);
        }
      }
    }
    if (result_.valid_sets.empty() && result_.splits[1]) result_.valid_sets = {result_.splits[1]};
    std::sort(result_.warnings.begin(), result_.warnings.end());
    result_.warnings.erase(std::unique(result_.warnings.begin(), result_.warnings.end()),
                           result_.warnings.end());
    return std::move(result_);
  }

  std::int64_t count_train_samples(double epochs) {
    const DataSources sources = data_sources(config_);
    options_.defer_index = true;
    std::vector<std::int64_t> counts;
    if (sources.is_mock()) {
      divide_by(kMockSplit);
      const SplitDatasets parts = build_mock_splits({std::nullopt, 0, 0});
      counts = {parts[0]->samples_of_epochs(epochs)};
    } else if (sources.blend) {
      counts = samples_of_epochs(sources.blend->prefixes,
                                 divide_by(config_.split.empty() ? kDefaultSplit : config_.split),
                                 epochs);
    } else if (const auto& blend = (*sources.blend_per_split)[0]) {
      counts = samples_of_epochs(blend->prefixes, {std::pair(0.0, 1.0)}, epochs);
    }
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }

 private:
  /// Divides every source by this --split. Returns its shares.
  const SplitMatrix& divide_by(const std::string& split) {
    options_.split_text = split;
    options_.split_matrix = parse_split(split);
    return *options_.split_matrix;
  }

  void build_mock() {
    if (!config_.split.empty() && parse_split(config_.split) != parse_split(kMockSplit))
      result_.warnings.push_back(
          "--split " + config_.split +
          " has no effect: mock data are always divided 1,1,1, as in Megatron-LM");
    divide_by(kMockSplit);
    const SplitDatasets datasets = build_mock_splits(request_.num_samples);
    std::copy(datasets.begin(), datasets.end(), result_.splits.begin());
  }

  SplitDatasets build_mock_splits(const Sizes& sizes) {
    const auto [vocab_size, eod] = std::pair(request_.tokenizer.vocab_size, request_.tokenizer.eod);
    const SplitMatrix& matrix = *options_.split_matrix;
    if (config_.sft)
      return build_conversations(std::make_shared<const ConversationFile>(mock_conversations()),
                                 matrix, sizes, /*cache=*/false);
    if (request_.kind == SampleKind::gpt)
      return build_source(std::make_shared<const MockTokenSource>(vocab_size, eod), SourcePart{},
                          matrix, sizes);
    add_mock_tokens(options_.masked.tokens);
    if (request_.kind == SampleKind::labelled)
      return build_labelled(std::make_shared<const LabelledTexts>(mock_labelled_texts(
                                std::max(options_.masked.num_classes, labelled_.num_classes),
                                labelled_.num_choices, *request_.tokenizer.text)),
                            SourcePart{}, matrix, sizes);
    return build_sentences(mock_sentences(vocab_size, eod), SourcePart{}, matrix, sizes);
  }

  void build_blend(const Blend& blend, const SplitMatrix& matrix, bool plain_when_single) {
    const bool plain = blend.prefixes.size() == 1 && plain_when_single;
    std::vector<double> weights;
    if (blend.weights && !plain) weights = normalize(*blend.weights);

    SplitMatrix wanted = matrix;
    for (std::size_t split = 0; split < 3 && !plain; ++split) {
      if (request_.num_samples[split] == 0) wanted[split].reset();
    }
    const std::vector<BlendPhase> phases =
        wanted[0] && !plain ? train_phases(blend, matrix) : std::vector<BlendPhase>();
    const std::vector<std::int64_t> of_phases =
        samples_to_build(phases, config_.mid_level_dataset_surplus);
    std::vector<SplitDatasets> parts(blend.prefixes.size());
    parallel_for(parts.size(), [&](std::size_t i) {
      Sizes sizes = request_.num_samples;
      if (!plain) {
        for (std::size_t split = 0; split < 3; ++split)
          if (wanted[split])
            sizes[split] = weights.empty()
                               ? std::optional<std::int64_t>()
                               : target(split, weights[i], config_.mid_level_dataset_surplus);
      }
      if (!phases.empty()) sizes[0] = of_phases[i];
      parts[i] = build_prefix(blend.prefixes[i], wanted, sizes);
    });
    for (std::size_t split = 0; split < 3; ++split) {
      if (!wanted[split]) continue;
      result_.splits[split] =
          plain ? std::shared_ptr<const Dataset>(parts[0][split])
                : mix(parts, split, weights, split == 0 ? phases : std::vector<BlendPhase>());
    }
  }

  /// Returns the phases of the train blend; none if its own weights or sizes hold throughout.
  std::vector<BlendPhase> train_phases(const Blend& blend, const SplitMatrix& matrix) {
    if (!request_.train_schedule.phases.empty()) return request_.train_schedule.phases;
    if (blend.weights || !request_.repeats_train || !request_.num_samples[0]) return {};
    const std::vector<std::int64_t> counts = samples_of_epochs(blend.prefixes, matrix, 1);
    const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    if (all == 0 || *request_.num_samples[0] <= all) return {};
    BlendPhase whole{.span = {},
                     .weights = normalize(std::vector<double>(counts.begin(), counts.end()))};
    whole.span.num_samples = *request_.num_samples[0];
    return {whole};
  }

  /// Returns the number of samples that each source's train split has in so many epochs.
  std::vector<std::int64_t> samples_of_epochs(const std::vector<std::string>& prefixes,
                                              const SplitMatrix& matrix, double epochs) {
    SplitMatrix only;
    only[0] = matrix[0];
    std::vector<std::int64_t> counts(prefixes.size(), 0);
    const bool defers = std::exchange(options_.defer_index, true);
    parallel_for(prefixes.size(), [&](std::size_t i) {
      const SplitDatasets parts = build_prefix(prefixes[i], only, {std::nullopt, 0, 0});
      if (parts[0]) counts[i] = parts[0]->samples_of_epochs(epochs);
    });
    options_.defer_index = defers;
    return counts;
  }

  void build_validation_sets(const Blend& blend, const SplitMatrix& only) {
    for (const std::string& prefix : blend.prefixes) {
      build_blend({.prefixes = {prefix}, .weights = {}}, only, /*plain_when_single=*/true);
      if (result_.splits[1]) result_.valid_sets.push_back(std::move(result_.splits[1]));
    }
  }

  /// Returns megatron-core's ceil(ceil(size · weight) · (1 + surplus)).
  std::int64_t target(std::size_t split, double weight, double surplus) const {
    if (!request_.num_samples[split])
      throw UserError({"datasets with weights cannot give one epoch of the " +
                           std::string(split_name(kSplits[split])) + " split",
                       "", "leave out the weights, or give the number of samples"});
    const double share = std::ceil(static_cast<double>(*request_.num_samples[split]) * weight);
    return static_cast<std::int64_t>(std::ceil(share * (1 + surplus)));
  }

  /// Builds the splits of one pair of files or, with --sft or --task, of one file of text.
  SplitDatasets build_prefix(const std::string& prefix, const SplitMatrix& matrix,
                             const Sizes& sizes) {
    if (request_.kind == SampleKind::labelled)
      return build_labelled(labelled_.files.at(prefix), {.path = prefix}, matrix, sizes);
    if (!config_.sft) {
      const auto source = std::make_shared<const IndexedDataset>(
          prefix, IndexedDatasetOptions{.mmap = config_.mmap_bin_files,
                                        .storage = storage_options(config_)});
      const SourcePart whole{.path = prefix, .index_path = source->index_path()};
      return request_.kind == SampleKind::gpt
                 ? build_source(source, whole, matrix, sizes)
                 : build_sentences({source, source->document_indices()}, whole, matrix, sizes);
    }
    return build_conversations(std::make_shared<const ConversationFile>(prefix), matrix, sizes,
                               request_.cache);
  }

  SplitDatasets build_conversations(const std::shared_ptr<const ConversationFile>& file,
                                    const SplitMatrix& matrix, const Sizes& sizes, bool cache) {
    const SftDatasetOptions options{.sequence_length = options_.sequence_length,
                                    .seed = options_.seed,
                                    .split_text = options_.split_text,
                                    .split_matrix = options_.split_matrix,
                                    .row_multiple = request_.row_multiple,
                                    .packing = packing_strategy(config_.sft_packing_strategy),
                                    .report_lines = request_.packing_report_lines,
                                    .cache = cache,
                                    .cache_folder = config_.data_cache_path,
                                    .prompt_format = prompt_format_->description(),
                                    .tokenizer_flags = request_.tokenizer.flags,
                                    .tokenizer_files = request_.tokenizer.files,
                                    .tokenizer = options_.tokenizer};
    if (const auto line = file->first_invalid_line())
      add_warnings({file->describe(*line) + " contains invalid UTF-8, which is read as U+FFFD"});
    return divide(file->size(), {.path = file->path().string()}, matrix, sizes,
                  [&](const SourcePart& part, auto& warnings) {
                    return std::make_shared<const SftDataset>(file, part, options, prompt_format_,
                                                              warnings);
                  });
  }

  SplitDatasets build_source(const std::shared_ptr<const TokenSource>& source,
                             const SourcePart& whole, const SplitMatrix& matrix,
                             const Sizes& sizes) {
    const auto sequences = static_cast<std::int64_t>(source->sequence_lengths().size());
    if (sequences > std::int64_t{1} << 31)
      throw UserError({"dataset " + source->name() + ": more than 2147483648 sequences", "",
                       "split it into several datasets"});
    const std::optional<PackingStrategy> packing =
        document_packing_strategy(config_.document_packing_strategy);
    return divide(
        sequences, whole, matrix, sizes,
        [&](const SourcePart& part, auto& warnings) -> std::shared_ptr<const SourceDataset> {
          if (!packing) return std::make_shared<const GptDataset>(source, part, options_, warnings);
          return std::make_shared<const PackedGptDataset>(source, part, options_, *packing,
                                                          warnings);
        });
  }

  /// Builds the splits of BERT or T5, which divide documents.
  SplitDatasets build_sentences(const SentenceSource& source, const SourcePart& whole,
                                const SplitMatrix& matrix, const Sizes& sizes) {
    const auto make = request_.kind == SampleKind::bert ? make_bert_dataset : make_t5_dataset;
    return divide(source.num_documents(), whole, matrix, sizes,
                  [&](const SourcePart& part, auto& warnings) {
                    return make(source, part, options_, warnings);
                  });
  }

  SplitDatasets build_labelled(const std::shared_ptr<const LabelledTexts>& texts,
                               const SourcePart& whole, const SplitMatrix& matrix,
                               const Sizes& sizes) {
    return divide(std::ssize(*texts), whole, matrix, sizes, [&](const SourcePart& part, auto&) {
      return make_labelled_dataset(texts, part, options_);
    });
  }

  void add_warnings(const std::vector<std::string>& warnings) {
    const std::lock_guard lock(warnings_mutex_);
    result_.warnings.insert(result_.warnings.end(), warnings.begin(), warnings.end());
  }

  /// Calls make(part, warnings) for the part of each split that is wanted.
  template <class Make>
  SplitDatasets divide(std::int64_t count, const SourcePart& whole, const SplitMatrix& matrix,
                       const Sizes& sizes, const Make& make) {
    SplitDatasets datasets;
    std::vector<std::string> warnings;
    for (const Split split : kSplits) {
      const auto index = static_cast<std::size_t>(split);
      if (!matrix[index]) continue;
      const auto [begin, end] = split_range(*matrix[index], count);
      if (begin == end && sizes[index] == 0) continue;
      SourcePart part = whole;
      part.begin = begin;
      part.end = end;
      part.num_samples = sizes[index];
      part.split = split;
      datasets[index] = make(part, warnings);
    }
    add_warnings(warnings);
    return datasets;
  }

  std::shared_ptr<const Dataset> mix(const std::vector<SplitDatasets>& parts, std::size_t split,
                                     const std::vector<double>& weights,
                                     const std::vector<BlendPhase>& phases) {
    BlendOptions options{
        .weights = weights,
        .size = request_.num_samples[split],
        .phases = phases,
        .cache_folder = request_.cache && labelled_.files.empty() ? config_.data_cache_path : "",
        .surplus = config_.mid_level_dataset_surplus};
    std::vector<std::shared_ptr<const SourceDataset>> datasets;
    std::int64_t total = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      datasets.push_back(parts[i][split]);
      total += weights.empty() ? datasets.back()->size() : target(split, weights[i], 0.0);
    }
    if (options.size) options.size = weights.empty() ? std::min(*options.size, total) : total;
    return std::make_shared<const BlendedDataset>(std::move(datasets), options, result_.warnings);
  }

  const DataConfig& config_;
  const DatasetRequest& request_;
  GptDatasetOptions options_;
  std::shared_ptr<const PromptFormat> prompt_format_;  ///< null without --sft
  LabelledData labelled_;                              ///< empty without --task
  std::mutex warnings_mutex_;
  Datasets result_;
};

}  // namespace

const Dataset& Datasets::require(Split split) const {
  const std::string name(split_name(split));
  const auto& dataset = splits[static_cast<std::size_t>(split)];
  if (!dataset)
    throw UserError({"the " + name + " split has no data", "",
                     "give it a share with --split, or data with --" + name + "-data-path"});
  return *dataset;
}

MaskedRequest masked_request(SampleKind kind, const DataConfig& config,
                             const std::shared_ptr<const Tokenizer>& tokenizer,
                             std::int64_t extra_ids) {
  const bool is_t5 = kind == SampleKind::t5;
  MaskedRequest request{.masking = {.probability = config.mask_prob,
                                    .short_sequence_probability = config.short_seq_prob,
                                    .max_ngram = is_t5 ? 10 : 3,
                                    .geometric = is_t5},
                        .tokens = masking_tokens(tokenizer, extra_ids)};
  if (kind == SampleKind::labelled && request.tokens.cls < 0)  // RoBERTa's
    request.tokens.cls = tokenizer->find("<s>"), request.tokens.sep = tokenizer->find("</s>");
  // T5's own vocabulary has no token for the beginning: its decoder begins with padding.
  if (is_t5 && request.tokens.bos < 0) request.tokens.bos = request.tokens.pad;
  return request;
}

StorageOptions storage_options(const DataConfig& config) {
  return {.cache_path = config.object_storage_cache_path,
          .cache_bytes = static_cast<std::uint64_t>(config.object_storage_cache_mib) << 20,
          .chunk_bytes = static_cast<std::uint64_t>(config.object_storage_chunk_mib) << 20};
}

Datasets build_datasets(const DataConfig& config, const DatasetRequest& request) {
  return Builder(config, request).build();
}

std::int64_t count_train_samples(const DataConfig& config, const DatasetRequest& request,
                                 double epochs) {
  return Builder(config, request).count_train_samples(epochs);
}

}  // namespace megatron
