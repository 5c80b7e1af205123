// Implements `megatron dataset show|info|merge|plan`: prints training samples, describes .bin/.idx
// pairs and merges several pairs into one.
#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/cli/command.h"
#include "megatron/cli/dataset_plan.h"
#include "megatron/config/field_table.h"
#include "megatron/config/problems.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings_tables.h"
#include "megatron/datasets/builder.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/datasets/prompt_format.h"
#include "megatron/datasets/sample_counts.h"
#include "megatron/datasets/split.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
namespace {

struct DatasetCommandOptions {
  std::vector<std::string> operands;
  std::optional<std::int64_t> seq_length;
  std::int64_t seed = 1234;
  std::string num_samples = "none,none,none";
  std::string split_name = "train";
  std::int64_t start = 0, count = 10, vocab_size = 50257;
  std::string input, output_prefix;
  bool multimodal = false, decode = false;
  TokenizerConfig tokenizer;
  DataConfig data;
};

/// The flags that name a tokenizer. --vocab-size is declared by the command itself.
const FieldTable<TokenizerConfig>& tokenizer_name_table() {
  static const FieldTable<TokenizerConfig> table = [] {
    FieldTable<TokenizerConfig> t;
    for (const char* name : {"tokenizer_type", "tokenizer_model", "vocab_file", "merge_file"}) {
      const Field* field = tokenizer_table().set().find_name(name);
      MEGATRON_CHECK(field != nullptr, "no setting of the tokenizer is called ", name);
      t.add_field(*field);
    }
    return t;
  }();
  return table;
}

const FieldTable<DatasetCommandOptions>& dataset_table() {
  using Options = DatasetCommandOptions;
  static const FieldTable<Options> table = [] {
    FieldTable<Options> t;
    t.about(
        "show prints samples in training order, one JSON line each: "
        "{\"index\":0,\"tokens\":[...]}, "
        "with --sft also \"labels\" and \"cu_seqlens\", with --decode also \"text\". info "
        "PREFIX... prints documents, tokens and type. merge "
        "PREFIX... --output-prefix P merges datasets, and merge --input FOLDER those of a folder. "
        "plan takes the flags of a run (megatron pretrain), --world-size N and --json, and prints "
        "the documents, tokens, samples and epochs that the run takes of each source.");
    t.field("action", &Options::operands, "show, info PREFIX..., merge PREFIX... or plan FLAGS...")
        .positional()
        .value_name("WORD");
    t.group("Samples to show");
    t.field("seq_length", &Options::seq_length, "number of tokens per sample").at_least(1);
    t.field("seed", &Options::seed, "random seed of the sample order")
        .at_least(0)
        .at_most(4294967295.0);
    t.field("num_samples", &Options::num_samples,
            "number of samples of train, valid and test that the order covers; none: one epoch")
        .value_name("T,V,E");
    t.field("split_name", &Options::split_name, "split to show")
        .choices({"train", "valid", "test"});
    t.field("start", &Options::start, "index of the first sample").at_least(0);
    t.field("count", &Options::count, "largest number of samples to print").at_least(0);
    t.field("vocab_size", &Options::vocab_size,
            "size of the vocabulary of --mock-data and NullTokenizer; the last id ends documents")
        .at_least(1);
    t.group("Text of the samples");
    t.field("decode", &Options::decode,
            "print the text of each sample too, with special tokens; requires tokenizer flags");
    t.include(&Options::tokenizer, tokenizer_name_table());
    t.group("Merging");
    t.field("input", &Options::input,
            "merge all .bin/.idx pairs of this folder, in alphabetical order")
        .value_name("FOLDER");
    t.field("output_prefix", &Options::output_prefix, "prefix of the merged dataset")
        .value_name("PREFIX");
    t.field("multimodal", &Options::multimodal, "merge multimodal datasets, which contain modes");
    t.include(&Options::data, data_table());
    return t;
  }();
  return table;
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
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
    if (error != std::errc() || end != word.data() + word.size() || size < 0) throw wrong();
    sizes[i] = size;
  }
  if (!rest.empty() || std::count(text.begin(), text.end(), ',') != 2) throw wrong();
  return sizes;
}

std::unique_ptr<Tokenizer> open_tokenizer(const DatasetCommandOptions& options) {
  TokenizerConfig config = options.tokenizer;
  if (!has_tokenizer(config))
    throw UserError({options.data.sft ? "--sft needs a tokenizer"
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
std::string json_text(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Throws all mistakes in the flags of --fim-data and --sft.
void check_sample_flags(const DataConfig& data) {
  Settings settings;
  settings.data = data;
  Problems problems = evaluate(fim_rules(), settings, {});
  problems.add(evaluate(sft_rules(), settings, {}));
  problems.throw_if_any();
}

std::string joined(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (const std::int64_t number : numbers)
    text += (text.empty() ? "" : ",") + std::to_string(number);
  return text;
}

/// Returns the labels of a packed sample, with −100 where there is no loss, and the boundaries of
/// its conversations.
std::string packed_fields(const Sample& sample) {
  std::vector<std::int64_t> labels = sample.labels, boundaries = sample.document_starts;
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (sample.loss_mask[i] == 0) labels[i] = kIgnoredLabel;
  boundaries.push_back(static_cast<std::int64_t>(sample.tokens.size()));
  return ",\"labels\":[" + joined(labels) + "],\"cu_seqlens\":[" + joined(boundaries) + "]";
}

int show(const DatasetCommandOptions& options) {
  if (!options.seq_length) throw UserError({"show needs --seq-length", "", ""});
  const bool needs_tokenizer = options.decode || options.data.fim.fim_data || options.data.sft;
  if (has_tokenizer(options.tokenizer) && !needs_tokenizer)
    throw UserError({"a tokenizer is given, but not --decode", "",
                     "add --decode to print the text of samples, or leave the tokenizer out"});
  check_sample_flags(options.data);
  const std::shared_ptr<const Tokenizer> tokenizer =
      needs_tokenizer ? open_tokenizer(options) : nullptr;
  const auto name = std::find_if(kSplits.begin(), kSplits.end(), [&](Split split) {
    return split_name(split) == options.split_name;
  });
  DatasetRequest request{.sequence_length = *options.seq_length,
                         .seed = options.seed,
                         .num_samples = parse_sizes(options.num_samples),
                         .cache = !options.data.data_cache_path.empty(),
                         .tokenizer = {.vocab_size = options.vocab_size,
                                       .eod = options.vocab_size - 1,
                                       .text = tokenizer,
                                       .folder = tokenizer_folder(options.tokenizer)}};
  for (const Split other : kSplits) {  // one that nobody asked for may be empty
    auto& size = request.num_samples[static_cast<std::size_t>(other)];
    if (other != *name && !size) size = 0;
  }
  const Datasets datasets = build_datasets(options.data, request);
  for (const std::string& warning : datasets.warnings) std::cerr << "note: " << warning << "\n";
  const Dataset& dataset = datasets.require(*name);
  if (options.start > dataset.size())
    throw UserError(
        {"--start " + std::to_string(options.start) + " is beyond the end",
         "the " + options.split_name + " split has " + std::to_string(dataset.size()) + " samples",
         ""});
  const std::int64_t end = options.start + std::min(options.count, dataset.size() - options.start);
  std::string line;
  for (std::int64_t index = options.start; index < end && std::cout; ++index) {
    const std::optional<Sample> packed =
        options.data.sft ? std::optional(dataset.sample(index)) : std::nullopt;
    const std::vector<std::int64_t> ids = packed ? packed->tokens : dataset.text(index);
    line = "{\"index\":" + std::to_string(index) + ",\"tokens\":[" + joined(ids) + "]";
    if (packed) line += packed_fields(*packed);
    if (options.decode)
      line += ",\"text\":" + json_text(tokenizer->decode(in_vocabulary(ids, *tokenizer, index),
                                                         SpecialTokens::keep));
    std::cout << line << "}\n";
  }
  return 0;
}

int info(const std::vector<std::string>& prefixes) {
  if (prefixes.empty())
    throw UserError({"info needs the prefix of a .bin/.idx pair", "",
                     "megatron dataset info data/my_text_document"});
  for (const std::string& prefix : prefixes) {
    const IndexedDataset dataset(prefix);
    dataset.check();
    if (prefixes.size() > 1) std::cout << prefix << "\n";
    std::cout << "documents: " << dataset.num_documents()
              << "\nsequences: " << dataset.num_sequences() << "\ntokens: " << dataset.num_tokens()
              << "\ndtype: " << token_dtype_name(dataset.type())
              << "\nbytes: " << dataset.bin_size() << "\n";
  }
  return 0;
}

/// Returns the prefixes of the pairs in a folder, as Megatron-LM's merge_datasets.py takes them:
/// every file must belong to a pair.
std::vector<std::string> pairs_of_folder(const fs::path& folder) {
  std::set<std::string> prefixes;
  std::error_code code;
  for (const auto& file : fs::directory_iterator(folder, code)) {
    std::error_code ignored;
    if (!file.is_regular_file(ignored)) continue;
    const fs::path prefix = folder / file.path().stem();
    const fs::path other = prefix.string() + (file.path().extension() == ".idx" ? ".bin" : ".idx");
    if (!fs::is_regular_file(other, ignored))
      throw UserError({"--input " + folder.string() + ": " + file.path().filename().string() +
                           " has no " + other.filename().string() + " beside it",
                       "", "give a folder that holds nothing but .bin/.idx pairs"});
    prefixes.insert(prefix.string());
  }
  if (code) throw_file_error("read folder", folder, code.value());
  return {prefixes.begin(), prefixes.end()};
}

int merge(std::vector<std::string> prefixes, const DatasetCommandOptions& options) {
  if (!options.input.empty()) {
    if (!prefixes.empty())
      throw UserError({"merge: prefixes and --input are both given", "", "leave one of them out"});
    prefixes = pairs_of_folder(options.input);
    if (prefixes.empty())
      throw UserError({"--input " + options.input + " holds no .bin/.idx pair", "", ""});
  }
  if (prefixes.empty() || options.output_prefix.empty())
    throw UserError({"merge needs prefixes and --output-prefix", "",
                     "megatron dataset merge data/a_text_document data/b_text_document "
                     "--output-prefix data/all"});
  const IndexedDatasetOptions reading{.multimodal = options.multimodal, .partial = true};
  IndexedDatasetBuilder builder(options.output_prefix, IndexedDataset(prefixes[0], reading).type(),
                                options.multimodal);
  for (const std::string& prefix : prefixes) {
    const IndexedDataset dataset(prefix, reading);
    builder.add_dataset(dataset);
    const std::uint64_t taken =
        static_cast<std::uint64_t>(dataset.num_tokens()) * token_dtype_size(dataset.type());
    if (taken != dataset.bin_size())
      std::cerr << "note: " << prefix << ".idx takes " << taken << " of the " << dataset.bin_size()
                << " bytes of " << prefix << ".bin\n";
  }
  builder.finalize();
  std::cout << options.output_prefix << ": " << builder.num_documents() << " documents, "
            << builder.num_tokens() << " tokens\n";
  return 0;
}

}  // namespace

const FieldSet& dataset_fields() { return dataset_table().set(); }

int run_dataset(std::span<const std::string> args) {
  if (!args.empty() && args[0] == "plan") return run_dataset_plan(args.subspan(1));
  DatasetCommandOptions options;
  const ParseResult parsed = parse_command_line(dataset_table(), args, options, "dataset");
  std::cerr << notes_text(parsed);
  const std::string action = options.operands.empty() ? "" : options.operands[0];
  const std::vector<std::string> prefixes(
      options.operands.begin() + (options.operands.empty() ? 0 : 1), options.operands.end());
  if (action == "info") return info(prefixes);
  if (action == "merge") return merge(prefixes, options);
  if (action != "show")
    throw UserError({"the first word must be show, info, merge or plan",
                     action.empty() ? "there is none" : action, "see megatron dataset --help"});
  if (!prefixes.empty())
    throw UserError({"show: unexpected word " + prefixes[0], "", "give datasets with --data-path"});
  return show(options);
}

}  // namespace megatron
