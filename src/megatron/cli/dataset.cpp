// Implements `megatron dataset show|info|merge|plan`: prints training samples, describes .bin/.idx
// pairs and merges several pairs into one.
#include <iostream>
#include <map>
#include <set>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/cli/command.h"
#include "megatron/cli/dataset_show.h"
#include "megatron/config/action_flags.h"
#include "megatron/config/field_table.h"
#include "megatron/config/problems.h"
#include "megatron/config/rule.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/builder.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/indexed_dataset_builder.h"
#include "megatron/datasets/prompt_format.h"
#include "megatron/datasets/sample_counts.h"
#include "megatron/datasets/split.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
template <>
struct EnumNames<SampleKind> {
  static constexpr std::array<std::pair<std::string_view, SampleKind>, 3> value{
      {{"gpt", SampleKind::gpt}, {"bert", SampleKind::bert}, {"t5", SampleKind::t5}}};
};

namespace {

/// The flags that name a tokenizer. --vocab-size is declared by the command itself.
const FieldTable<TokenizerConfig>& tokenizer_name_table() {
  return field_table<TokenizerConfig>([](auto& t) {
    using Config = TokenizerConfig;
    for (const Setting& setting : std::initializer_list<Setting>{
             &Config::tokenizer_type, &Config::tokenizer_model, &Config::vocab_file,
             &Config::merge_file, &Config::tokenizer_special_tokens,
             &Config::tokenizer_prompt_format, &Config::tokenizer_metadata,
             &Config::tokenizer_hf_no_include_special_tokens, &Config::image_tag_type,
             &Config::force_system_message})
      t.add_field(*tokenizer_table().set().find_name(setting.name()));
  });
}

const FieldTable<DatasetCommandOptions>& dataset_table() {
  using Options = DatasetCommandOptions;
  return field_table<Options>([](auto& t) {
    t.about(
        "show prints samples in training order, one JSON line each: "
        "{\"index\":0,\"tokens\":[...]}, "
        "with --sft also \"labels\" and \"cu_seqlens\", with --decode also \"text\", with "
        "--dataloader-type cyclic also the number of the \"sample\" in the split; with "
        "--dataset-type bert or t5, megatron-core's fields. info "
        "PREFIX... prints documents, tokens and type. merge PREFIX... --output-prefix P merges "
        "datasets, and merge --input FOLDER those of a folder. "
        "plan takes the flags of a run (megatron pretrain), --world-size N and --json, and prints "
        "the documents, tokens, samples and epochs that the run takes of each source.");
    t.field("action", &Options::operands, "show, info PREFIX..., merge PREFIX... or plan FLAGS...")
        .positional()
        .value_name("WORD");
    t.group("Samples to show");
    t.field("seq_length", &Options::seq_length, "number of tokens per sample")
        .between(1, 1'000'000'000);
    t.field("seed", &Options::seed, "random seed of the sample order").between(0, 4294967295.0);
    t.field("num_samples", &Options::num_samples,
            "number of samples of train, valid and test that the order covers; none: one epoch")
        .value_name("T,V,E");
    t.field("global_batch_size", &Options::global_batch_size,
            "number of samples per training step, in whose steps --blend-schedule counts")
        .at_least(0);
    t.field("micro_batch_size", &Options::micro_batch_size,
            "number of samples per microbatch, on which the order of --dataloader-type cyclic "
            "depends")
        .between(1, 1e6);
    t.field("data_parallel_size", &Options::data_parallel_size,
            "number of data-parallel ranks, on which the order of --dataloader-type cyclic depends")
        .between(1, 1e6);
    t.field("split_name", &Options::split_name, "split to show")
        .choices({"train", "valid", "test"});
    t.field("start", &Options::start, "index of the first sample").at_least(0);
    t.field("count", &Options::count, "largest number of samples to print").at_least(0);
    t.field("vocab_size", &Options::vocab_size,
            "size of the vocabulary of --mock-data and NullTokenizer; the last id ends documents")
        .at_least(1);
    t.group("Samples of BERT and T5");
    t.field("dataset_type", &Options::dataset_type,
            "model whose samples are shown; bert and t5 mask the words of sentences, which "
            "preprocess-data --split-sentences makes, and need tokenizer flags");
    t.field("bert_no_binary_head", &Options::bert_no_binary_head,
            "give BERT single texts instead of pairs");
    t.group("Text of the samples");
    t.field("decode", &Options::decode,
            "print the text of each sample too, with special tokens; requires tokenizer flags");
    t.include(&Options::tokenizer, chat_template_table());
    t.include(&Options::tokenizer, tokenizer_name_table());
    t.group("Merging");
    t.field("input", &Options::input,
            "merge all .bin/.idx pairs of this folder, in alphabetical order")
        .value_name("FOLDER");
    t.field("output_prefix", &Options::output_prefix, "prefix of the merged dataset")
        .value_name("PREFIX");
    t.field("multimodal", &Options::multimodal,
            "merge or describe multimodal datasets, whose indices contain a mode per sequence");
    t.include(&Options::data, data_table());
  });
}

constexpr std::string_view kShow = "show", kInfo = "info", kMerge = "merge";

/// Says which actions use a flag, or the flags of a group that are not named themselves. `plan`
/// has the flags of a run.
std::span<const FlagActions> flag_uses() {
  static const std::vector<FlagActions> uses = {
      {"Samples to show", {kShow}},
      {"Samples of BERT and T5", {kShow}},
      {"Text of the samples", {kShow}},
      {"Tokenizer", {kShow}},
      {"Conversations", {kShow}},
      {"multimodal", {kInfo, kMerge}},
      {"Merging", {kMerge}},
      {"object_storage_cache_path", {kShow, kInfo, kMerge}},
      {"object_storage_cache_mib", {kShow, kInfo, kMerge}},
      {"object_storage_chunk_mib", {kShow, kInfo, kMerge}},
      {"num_workers", {}},  // from here on: what changes no token of a sample
      {"reset_position_ids", {}},
      {"reset_attention_mask", {kShow}},  // it changes what is printed of packed documents
      {"eod_mask_loss", {kShow}},
      {"dataloader_inter_document_masking", {kShow}},
      {"allow_ambiguous_pad_tokens", {}},
      {"task", {}},
      {"keep_padding", {}},
      {"Data", {kShow}},
      {"Fill in the middle", {kShow}},
      {"Supervised finetuning", {kShow}}};
  return uses;
}

/// Throws all mistakes of flags that depend on another flag which is not given.
void check_flag_conditions(const DatasetCommandOptions& options, const ParseResult& parsed) {
  const bool cyclic = options.data.dataloader_type == "cyclic", packs = packs_documents(options);
  constexpr const char* kPacking = "--document-packing-strategy bfd or bfd_split";
  const struct {
    const char* name;
    bool holds;
    const char* condition;
  } conditions[] = {
      {"global_batch_size", !options.data.blend_schedule.empty(), "--blend-schedule"},
      {"micro_batch_size", cyclic, "--dataloader-type cyclic"},
      {"data_parallel_size", cyclic, "--dataloader-type cyclic"},
      {"data_sharding", cyclic, "--dataloader-type cyclic"},
      {"chat_template", options.data.sft, "--sft"},
      {"reset_attention_mask", packs, kPacking},
      {"eod_mask_loss", packs, kPacking},
      {"dataloader_inter_document_masking", packs, kPacking},
      {"tokenizer_hf_no_include_special_tokens", has_tokenizer(options.tokenizer),
       "--tokenizer-model"},
  };
  Problems problems;
  for (const auto& [name, holds, condition] : conditions)
    if (parsed.is_set(name) && !holds)
      problems.add({parsed.origin(name).where + " has no effect without " + condition, "",
                    "leave it out, or add " + std::string(condition)});
  problems.throw_if_any();
}

/// Returns how many sequences have each mode; nothing for a dataset without modes.
std::map<int, std::int64_t> count_modes(const IndexedDataset& dataset) {
  std::map<int, std::int64_t> counts;
  const auto modes = dataset.sequence_modes();
  for (std::size_t i = 0; i < modes.size(); ++i) ++counts[modes[i]];
  return counts;
}

int info(const std::vector<std::string>& prefixes, const DatasetCommandOptions& options) {
  if (prefixes.empty())
    throw UserError({"info needs the prefix of a .bin/.idx pair", "",
                     "megatron dataset info data/my_text_document"});
  for (const std::string& prefix : prefixes) {
    const IndexedDataset dataset(
        prefix, {.multimodal = options.multimodal, .storage = storage_options(options.data)});
    dataset.check();
    if (prefixes.size() > 1) std::cout << prefix << "\n";
    std::cout << "documents: " << dataset.num_documents()
              << "\nsequences: " << dataset.num_sequences() << "\ntokens: " << dataset.num_tokens()
              << "\ndtype: " << token_dtype_name(dataset.type())
              << "\nbytes: " << dataset.bin_size() << "\n";
    for (const auto& [mode, count] : count_modes(dataset))
      std::cout << "mode " << mode << ": " << count << " sequences\n";
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
  const IndexedDatasetOptions reading{
      .multimodal = options.multimodal, .partial = true, .storage = storage_options(options.data)};
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
  std::cerr << notes_text(parsed.notes);
  const std::string word = options.operands.empty() ? "" : options.operands[0];
  const std::vector<std::string> prefixes(
      options.operands.begin() + (options.operands.empty() ? 0 : 1), options.operands.end());
  if (word != kShow && word != kInfo && word != kMerge)
    throw UserError({"the first word must be show, info, merge or plan",
                     word.empty() ? "there is none" : word, "see megatron dataset --help"});
  refuse_unused_flags(dataset_fields(), parsed, word, flag_uses());
  if (word == kInfo) return info(prefixes, options);
  if (word == kMerge) return merge(prefixes, options);
  check_flag_conditions(options, parsed);
  if (!prefixes.empty())
    throw UserError({"show: unexpected word " + prefixes[0], "", "give datasets with --data-path"});
  return show_samples(options);
}

}  // namespace megatron
