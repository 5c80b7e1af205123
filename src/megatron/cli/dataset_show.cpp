#include "megatron/cli/dataset_show.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <limits>
#include <memory>
#include <string_view>
#include <variant>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/base/words.h"
#include "megatron/config/command_line.h"
#include "megatron/config/data_config.h"
#include "megatron/config/problems.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/datasets/encoder_identity.h"
#include "megatron/datasets/packing.h"
#include "megatron/datasets/prompt_format.h"
#include "megatron/datasets/sampler.h"
#include "megatron/datasets/split.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
namespace {

bool is_masked(const DatasetCommandOptions& options) {
  return options.dataset_type != SampleKind::gpt;
}

std::array<std::optional<std::int64_t>, 3> parse_sizes(const std::string& text) {
  const auto wrong = [&] {
    return UserError({"--num-samples must be three values, each a number or none", text,
                      "write for example --num-samples 1000,100,10"});
  };
  std::array<std::optional<std::int64_t>, 3> sizes;
  std::string_view rest = text;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::string_view word = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
    if (word == "none") continue;
    sizes[i] = exact_number<std::int64_t>(word);
    if (sizes[i].value_or(-1) < 0) throw wrong();
  }
  if (!rest.empty() || std::count(text.begin(), text.end(), ',') != 2) throw wrong();
  return sizes;
}

std::unique_ptr<Tokenizer> open_tokenizer(const DatasetCommandOptions& options) {
  TokenizerConfig config = options.tokenizer;
  if (!has_tokenizer(config))
    throw UserError({is_masked(options) ? "--dataset-type bert and t5 need a tokenizer"
                     : options.data.sft ? "--sft needs a tokenizer"
                                        : std::string(options.decode ? "--decode" : "--fim-data") +
                                              " needs the tokenizer that made the dataset",
                     "", "give --tokenizer-model FILE or --tokenizer-type TYPE"});
  config.vocab_size = options.vocab_size;
  return make_tokenizer(config);
}

/// Returns the ids without padding. Throws a UserError if the tokenizer does not have an id,
/// because then it is not the one that made the dataset.
std::vector<std::int32_t> in_vocabulary(const std::vector<std::int64_t>& ids,
                                        const Tokenizer& tokenizer, std::int64_t index) {
  std::vector<std::int32_t> result;
  for (const std::int64_t id : ids) {
    if (id >= tokenizer.vocab_size())
      throw UserError({"sample " + std::to_string(index) + " holds id " + std::to_string(id),
                       "the tokenizer has " + std::to_string(tokenizer.vocab_size()) + " ids",
                       "give the tokenizer that made the dataset"});
    if (id >= 0) result.push_back(static_cast<std::int32_t>(id));
  }
  return result;
}

/// Returns a JSON string. A character that a sample boundary splits becomes U+FFFD.
std::string json_text(const std::string& text) { return JsonText(text).dump(); }

/// Throws all mistakes in the flags that say what samples are made of, or prints the notes on them.
void check_sample_flags(const DataConfig& data) {
  Settings settings;
  settings.data = data;
  const Problems problems = evaluate(sample_rules(), settings, {});
  problems.throw_if_any();
  std::cerr << notes_text(problems.notes());
}

std::string joined(const std::vector<std::int64_t>& numbers) { return joined_text(numbers, ","); }

/// Returns the labels of a sample, with `ignored` where there is no loss.
std::vector<std::int64_t> labels_of(const Sample& sample, std::int64_t ignored) {
  std::vector<std::int64_t> labels = sample.get("labels");
  const std::vector<float>& loss_mask = sample.get<float>("loss_mask");
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (loss_mask[i] == 0) labels[i] = ignored;
  return labels;
}

/// Returns the labels of a packed sample and the boundaries of its documents or conversations.
std::string packed_fields(const Sample& sample) {
  std::vector<std::int64_t> boundaries = sample.document_starts;
  boundaries.push_back(sample.sequence_length());
  return ",\"labels\":[" + joined(labels_of(sample, kIgnoredLabel)) + "],\"cu_seqlens\":[" +
         joined(boundaries) + "]";
}

/// Throws a UserError for flags that show cannot follow, or not with this type of samples.
void check_type_flags(const DatasetCommandOptions& options) {
  const std::string name = options.dataset_type == SampleKind::t5 ? "t5" : "bert";
  const char* other = options.data.sft            ? "--sft"
                      : options.data.fim.fim_data ? "--fim-data"
                      : packs_documents(options)  ? "--document-packing-strategy"
                                                  : nullptr;
  if (is_masked(options) && other != nullptr)
    throw UserError(
        {"--dataset-type " + name + " does not go with " + other, "", "leave one of them out"});
  if (!is_masked(options) &&
      (options.data.decoder_seq_length > 0 || options.data.vocab_extra_ids > 0 ||
       options.bert_no_binary_head || options.data.mask_prob != DataConfig{}.mask_prob ||
       options.data.short_seq_prob != DataConfig{}.short_seq_prob))
    throw UserError(
        {"--mask-prob, --short-seq-prob, --decoder-seq-length, --vocab-extra-ids and "
         "--bert-no-binary-head are for masked samples",
         "", "add --dataset-type bert or t5, or leave them out"});
}

/// Returns the JSON members of a masked sample by megatron-core's names, without position_ids,
/// which it does not have.
std::string masked_members(const Sample& sample) {
  std::string text;
  for (std::size_t i = 0; i < sample.values.size(); ++i) {
    const SampleField& field = (*sample.fields)[i];
    if (field.name == "position_ids") continue;
    std::vector<std::int64_t> values;
    std::visit([&](const auto& all) { values.assign(all.begin(), all.end()); }, sample.values[i]);
    if (field.name == "labels") values = labels_of(sample, -1);
    text += ",\"" + (field.name == "tokens" ? "text" : field.name) + "\":";
    text += field.per_position ? "[" + joined(values) + "]" : joined(values);
  }
  return text;
}

/// Returns the text of ids, with special tokens; ids behind the vocabulary are T5's sentinels.
std::string decoded(const std::vector<std::int64_t>& ids, const Tokenizer& tokenizer,
                    std::int64_t index, bool is_t5) {
  std::vector<std::int64_t> known = ids;
  if (is_t5) std::erase_if(known, [&](std::int64_t id) { return id >= tokenizer.vocab_size(); });
  return json_text(tokenizer.decode(in_vocabulary(known, tokenizer, index), SpecialTokens::keep));
}

bool is_cyclic(const DatasetCommandOptions& options) {
  return options.data.dataloader_type == "cyclic";
}

/// Returns the JSON line of the sample `index`, which training takes at `position`.
std::string sample_line(const DatasetCommandOptions& options, const Dataset& dataset,
                        const Tokenizer* tokenizer, std::int64_t position, std::int64_t index) {
  std::string line = "{\"index\":" + std::to_string(position);
  if (is_cyclic(options)) line += ",\"sample\":" + std::to_string(index);
  if (is_masked(options)) {
    line += masked_members(dataset.sample(index));
    if (options.decode)
      line += ",\"decoded\":" + decoded(dataset.text(index), *tokenizer, index,
                                        options.dataset_type == SampleKind::t5);
    return line + "}";
  }
  const bool is_packed = options.data.sft || packs_documents(options);
  const std::optional<Sample> packed =
      is_packed ? std::optional(dataset.sample(index)) : std::nullopt;
  const std::vector<std::int64_t> ids =
      options.data.sft ? packed->get("tokens") : dataset.text(index);
  line += ",\"tokens\":[" + joined(ids) + "]";
  if (packed) line += packed_fields(*packed);
  if (options.decode) line += ",\"text\":" + decoded(ids, *tokenizer, index, false);
  return line + "}";
}

void print_samples(const DatasetCommandOptions& options, const Dataset& dataset,
                   const Tokenizer* tokenizer) {
  std::optional<Sampler> cyclic;
  if (is_cyclic(options)) {
    cyclic.emplace(SamplerOptions{.kind = SamplerKind::cyclic,
                                  .total_samples = dataset.size(),
                                  .micro_batch_size = options.micro_batch_size,
                                  .data_parallel_size = options.data_parallel_size,
                                  .data_sharding = options.data.data_sharding});
  } else if (options.start > dataset.size()) {
    throw UserError(
        {"--start " + std::to_string(options.start) + " is beyond the end",
         "the " + options.split_name + " split has " + std::to_string(dataset.size()) + " samples",
         ""});
  }
  const std::int64_t last = cyclic ? std::numeric_limits<std::int64_t>::max() : dataset.size(),
                     end = options.start + std::min(options.count, last - options.start);
  for (std::int64_t position = options.start; position < end && std::cout; ++position)
    std::cout << sample_line(options, dataset, tokenizer, position,
                             cyclic ? cyclic->cyclic_sample(position) : position)
              << "\n";
}

/// Returns the mixtures of a run that trains on `num_samples` samples.
BlendSchedule blend_schedule(const DatasetCommandOptions& options,
                             const std::optional<std::int64_t>& num_samples) {
  if (options.data.blend_schedule.empty()) return {};
  if (options.global_batch_size == 0 || !num_samples)
    throw UserError({"show: --blend-schedule changes weights at iterations of a run",
                     "its length or its batch size is unknown",
                     "add --num-samples T,V,E and --global-batch-size N"});
  Settings settings;
  settings.data = options.data;
  settings.training->micro_batch_size = 1;
  settings.training->global_batch_size = options.global_batch_size;
  settings.training->train_samples = *num_samples;
  settings.training->train_iters = *num_samples / options.global_batch_size;
  evaluate(blend_schedule_rules(), settings, {}).throw_if_any();
  return train_blend_schedule(*settings.training, *settings.data);
}

DatasetRequest show_request(const DatasetCommandOptions& options, Split split,
                            const std::shared_ptr<const Tokenizer>& tokenizer) {
  DatasetRequest request{.sequence_length = *options.seq_length,
                         .seed = options.seed,
                         .num_samples = parse_sizes(options.num_samples),
                         .cache = !options.data.data_cache_path.empty(),
                         .tokenizer = {.vocab_size = options.vocab_size,
                                       .eod = options.vocab_size - 1,
                                       .flags = encoder_flags(options.tokenizer),
                                       .files = tokenizer_paths(options.tokenizer),
                                       .text = tokenizer,
                                       .chat = chat_files(options.tokenizer)}};
  if (is_masked(options)) {
    request.kind = options.dataset_type;
    request.masked =
        masked_request(request.kind, options.data, tokenizer, options.data.vocab_extra_ids);
    request.masked.binary_head = !options.bert_no_binary_head;
    request.masked.decoder_sequence_length = options.data.decoder_seq_length;
  }
  if (is_masked(options) || options.data.fim.fim_data) {
    request.tokenizer.vocab_size = tokenizer->vocab_size();
    request.tokenizer.eod = tokenizer->eod();
  }
  if (split == Split::train)
    request.train_schedule = blend_schedule(options, request.num_samples[0]);
  for (const Split other : kSplits) {  // one that is not requested may be empty
    auto& size = request.num_samples[static_cast<std::size_t>(other)];
    if (other != split && !size) size = 0;
  }
  return request;
}

}  // namespace

bool packs_documents(const DatasetCommandOptions& options) {
  return document_packing_strategy(options.data.document_packing_strategy).has_value();
}

int show_samples(const DatasetCommandOptions& options) {
  if (!options.seq_length) throw UserError({"show needs --seq-length", "", ""});
  if (options.data.dataloader_type == "external")
    throw UserError({"show cannot print the samples of --dataloader-type external",
                     "a program that links the library makes them",
                     "use --dataloader-type single or cyclic"});
  check_type_flags(options);
  const bool needs_tokenizer =
      options.decode || options.data.fim.fim_data || options.data.sft || is_masked(options);
  if (has_tokenizer(options.tokenizer) && !needs_tokenizer)
    throw UserError({"a tokenizer is given, but not --decode", "",
                     "add --decode to print the text of samples, or leave the tokenizer out"});
  check_sample_flags(options.data);
  const std::shared_ptr<const Tokenizer> tokenizer =
      needs_tokenizer ? open_tokenizer(options) : nullptr;
  const auto name = std::find_if(kSplits.begin(), kSplits.end(), [&](Split split) {
    return split_name(split) == options.split_name;
  });
  const DatasetRequest request = show_request(options, *name, tokenizer);
  const Datasets datasets = build_datasets(options.data, request);
  for (const std::string& warning : datasets.warnings) std::cerr << "note: " << warning << "\n";
  const Dataset& dataset = datasets.require(*name);
  print_samples(options, dataset, tokenizer.get());
  return 0;
}

}  // namespace megatron
