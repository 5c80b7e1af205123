// Implements `megatron preprocess-data`: converts JSON lines and text to .bin/.idx datasets, with
// Megatron-LM's flags.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/base/terminal.h"
#include "megatron/cli/cleaning_flags.h"
#include "megatron/cli/command.h"
#include "megatron/config/data_config.h"
#include "megatron/config/field_table.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/encoder_identity.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/preprocess.h"
#include "megatron/datasets/punkt_parameters.h"
#include "megatron/datasets/punkt_splitter.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {

template <>
struct EnumNames<DocumentKind> {
  static constexpr std::array<std::pair<std::string_view, DocumentKind>, 3> value{
      {{"paragraph", DocumentKind::paragraph},
       {"line", DocumentKind::line},
       {"file", DocumentKind::file}}};
};

namespace {

struct PreprocessDataOptions {
  std::vector<std::string> input, json_keys = {"text"};
  std::string output_prefix;
  DocumentKind text_documents = DocumentKind::paragraph;
  std::string on_error = "stop";
  bool append_eod = false, split_sentences = false, keep_newlines = false,
       keep_sequential_samples = false, find_optimal_num_workers = false, json = false, sft = false;
  std::string lang = "english";
  std::string punkt_model;  ///< folder of parameters; "": nltk's data folders
  std::string sft_tokenizer_prompt_format = DataConfig{}.sft_tokenizer_prompt_format;
  std::int64_t workers = std::max(1u, std::thread::hardware_concurrency());
  std::int64_t partitions = 1, log_interval = 1000;
  CleaningFlags cleaning;
  TokenizerConfig tokenizer;
};

const FieldTable<PreprocessDataOptions>& preprocess_data_table() {
  using Options = PreprocessDataOptions;
  return field_table<Options>([](auto& t) {
    t.about(
        "Tokenizes JSON lines or text into PREFIX_text_document.bin and .idx, with the same bytes "
        "as Megatron-LM. A run that was killed continues when the same command is given again.");
    t.group("Input and output");
    t.field(
         "input", &Options::input,
         "files, globs or folders to read, or - for the standard input; .txt files are text, "
         "Parquet files have columns of text, all others are JSON lines; .gz and .zst files are "
         "decompressed; of a folder, the .jsonl, .json, .txt and .parquet files below it are read "
         "in alphabetical order")
        .required()
        .value_name("FILE");
    t.field("json_keys", &Options::json_keys,
            "fields or columns that contain text; one dataset is written for each")
        .value_name("KEY");
    t.field("output_prefix", &Options::output_prefix,
            "prefix of the datasets, which are named PREFIX_KEY_document, or PREFIX_KEY_sentence "
            "with --split-sentences")
        .required()
        .value_name("PREFIX");
    t.field("text_documents", &Options::text_documents,
            "what is a document in a .txt file: the lines up to a blank line, a line, or the whole "
            "file");
    t.field("append_eod", &Options::append_eod,
            "append the end-of-document token to every document");
    t.field("on_error", &Options::on_error,
            "what to do with a document that is malformed or cannot be tokenized: stop with an "
            "error, or skip it; skipped documents are counted and the first ones are named")
        .choices({"stop", "skip"});
    t.field("workers", &Options::workers, "number of tokenizer threads").between(1, 1024);
    t.field("log_interval", &Options::log_interval, "number of documents between progress lines")
        .at_least(1);
    t.field("partitions", &Options::partitions,
            "order documents as Megatron-LM does with so many partitions: every N-th document from "
            "the first one on, then every N-th from the second one on, ...; threads are the same "
            "for any number")
        .between(1, 1024);
    t.field("keep_sequential_samples", &Options::keep_sequential_samples,
            "with --partitions, keep the order of the input");
    t.field("find_optimal_num_workers", &Options::find_optimal_num_workers, "not supported")
        .hidden();
    t.field("json", &Options::json, "print the summary as JSON");
    t.include(&Options::cleaning, cleaning_table());
    t.group("Sentences");
    t.field("split_sentences", &Options::split_sentences,
            "make each sentence a sequence of its document, as BERT and T5 need it");
    t.field("lang", &Options::lang, "language of the sentences").value_name("LANGUAGE");
    t.field("punkt_model", &Options::punkt_model,
            "folder of nltk's punkt_tab, or of one language in it, which finds where sentences "
            "end; default: the folder in NLTK_DATA or nltk's usual places")
        .value_name("FOLDER");
    t.field("keep_newlines", &Options::keep_newlines,
            "keep the white space between sentences, at the end of the first one");
    t.group("Conversations");
    t.field("sft", &Options::sft,
            "read conversations, the lists 'messages' of JSON lines, and write the tokens of each "
            "line to PREFIX_messages_document");
    t.field("sft_tokenizer_prompt_format", &Options::sft_tokenizer_prompt_format,
            "text around the messages of a conversation; identity: nothing; default: the chat "
            "template of --tokenizer-model")
        .choices({"nemotron-h-aligned", "nemotron-nano-v2", "identity", "default"});
    t.include(&Options::tokenizer, chat_template_table());
    t.include(&Options::tokenizer, tokenizer_table());
  });
}

void refuse_unsupported(const PreprocessDataOptions& options) {
  if (options.sft && options.split_sentences)
    throw UserError({"--split-sentences divides text, and --sft reads conversations", "",
                     "leave one of them out"});
  if (options.sft && options.json_keys != PreprocessDataOptions{}.json_keys)
    throw UserError({"--json-keys has no effect with --sft", "", "leave it out"});
  if (!options.sft &&
      options.sft_tokenizer_prompt_format != PreprocessDataOptions{}.sft_tokenizer_prompt_format)
    throw UserError({"--sft-tokenizer-prompt-format has an effect only with --sft", "", "add it"});
  if (!options.sft && !options.tokenizer.chat_template.empty())
    throw UserError({"--chat-template has an effect only with --sft", "", "add it"});
  if (options.find_optimal_num_workers)
    throw UserError({"--find-optimal-num-workers", "is not supported",
                     "leave it and --workers out to use every core"});
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

/// Returns the folder of the language below --punkt-model, or that folder itself.
fs::path given_folder(const PreprocessDataOptions& options) {
  fs::path folder = options.punkt_model, of_language = folder / options.lang;
  if (is_folder(of_language)) return of_language;
  std::error_code ignored;
  if (fs::exists(folder / "abbrev_types.txt", ignored)) return folder;
  throw UserError({"--punkt-model " + options.punkt_model + " has neither a folder " +
                       options.lang + " nor abbrev_types.txt",
                   "", "give nltk's folder punkt_tab, or the folder of one language in it"});
}

/// Returns the folder of the language in the places where nltk looks for its data.
fs::path installed_folder(const std::string& lang) {
  std::vector<fs::path> places;
  const auto add_variable = [&](const char* name, const char* below) {
    const char* value = std::getenv(name);
    if (value == nullptr) return;
    std::string_view rest = value;
    while (!rest.empty()) {
      const std::string_view place = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(place.size() + 1, rest.size()));
      if (!place.empty()) places.push_back(fs::path(place) / below);
    }
  };
  add_variable("NLTK_DATA", "");
  add_variable("HOME", "nltk_data");
  for (const char* place : {"/usr/share/nltk_data", "/usr/local/share/nltk_data",
                            "/usr/lib/nltk_data", "/usr/local/lib/nltk_data"})
    places.emplace_back(place);
  const fs::path name = fs::path("tokenizers") / "punkt_tab" / lang;
  std::string searched;
  for (const fs::path& place : places) {
    if (is_folder(place / name)) return place / name;
    searched += (searched.empty() ? "" : ", ") + place.string();
  }
  throw UserError({"--split-sentences needs nltk's " + name.string(), "it is not in " + searched,
                   "run `python3 -m nltk.downloader punkt_tab`, or give --punkt-model FOLDER with "
                   "nltk's punkt_tab"});
}

/// Makes sentences the sequences of documents.
void split_sentences(const PreprocessDataOptions& options, PreprocessOptions& preprocessing) {
  const fs::path folder =
      options.punkt_model.empty() ? installed_folder(options.lang) : given_folder(options);
  preprocessing.sentences =
      std::make_shared<const PunktSplitter>(load_punkt(folder), options.keep_newlines);
  std::cerr << "note: sentences end as in " << folder.string() << "\n";
  preprocessing.encoder_identity += "sentences " + folder.string();
  preprocessing.encoder_identity += options.keep_newlines ? " and newlines\n" : "\n";
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(folder)) files.push_back(file.path());
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) preprocessing.encoder_identity += file_identity(file);
}

/// Makes lines conversations.
void read_conversations(const PreprocessDataOptions& options,
                        std::shared_ptr<const Tokenizer> tokenizer,
                        PreprocessOptions& preprocessing) {
  const ChatFiles files = chat_files(options.tokenizer);
  preprocessing.json_keys = {"messages"};
  preprocessing.conversations = std::make_shared<const PromptFormat>(
      options.sft_tokenizer_prompt_format, std::move(tokenizer), files);
  preprocessing.encoder_identity +=
      "conversations " + preprocessing.conversations->description() + "\n";
}

JsonText json_report(const PreprocessSummary& summary, TokenDtype type) {
  JsonText outputs = JsonText::array();
  for (const auto& output : summary.outputs)
    outputs.push_back({{"prefix", output.prefix},
                       {"documents", output.documents},
                       {"sequences", output.sequences},
                       {"tokens", output.tokens},
                       {"dtype", token_dtype_name(type)}});
  JsonText json = {{"outputs", std::move(outputs)},
                   {"text_bytes", summary.text_bytes},
                   {"seconds", summary.seconds},
                   {"invalid_documents", summary.invalid_documents},
                   {"malformed_documents", summary.malformed_documents}};
  if (summary.cleaning.documents > 0) json["cleaning"] = to_json(summary.cleaning);
  return json;
}

void report(const PreprocessSummary& summary, TokenDtype type) {
  for (const auto& output : summary.outputs) {
    std::cout << output.prefix << ": " << output.documents << " documents, ";
    if (output.prefix.ends_with("_sentence")) std::cout << output.sequences << " sentences, ";
    std::cout << output.tokens << " tokens, " << token_dtype_name(type)
              << format(" (%.1f MB of text in %.1f s)\n",
                        static_cast<double>(summary.text_bytes) / 1e6, summary.seconds);
  }
  print_cleaning_report(std::cout, summary.cleaning);
}

}  // namespace

const FieldSet& preprocess_data_fields() { return preprocess_data_table().set(); }

int run_preprocess_data(std::span<const std::string> args) {
  PreprocessDataOptions options;
  ParseResult parsed =
      parse_command_line(preprocess_data_table(), args, options, "preprocess-data");
  for (const char* name : {"keep_newlines", "lang", "punkt_model"})
    if (parsed.is_set(name) && !options.split_sentences)
      parsed.notes["without effect: there is no --split-sentences"].push_back(
          parsed.origin(name).where);
  std::cerr << notes_text(parsed.notes);
  refuse_unsupported(options);
  const std::shared_ptr<const Tokenizer> tokenizer = make_tokenizer(options.tokenizer);
  PreprocessOptions preprocess_options{
      .inputs = options.input,
      .json_keys = options.json_keys,
      .output_prefix = options.output_prefix,
      .text_documents = options.text_documents,
      .append_eod = options.append_eod,
      .eod = tokenizer->eod(),
      .vocab_size = tokenizer->vocab_size(),
      .workers = options.workers,
      .log_interval = options.log_interval,
      .accepts_invalid_utf8 = tokenizer->accepts_invalid_utf8(),
      .skip_malformed = options.on_error == "skip",
      .partitions = options.keep_sequential_samples ? 1 : options.partitions,
      .cleaning = cleaning_options(options.cleaning),
      .encoder_files = tokenizer_paths(options.tokenizer),
      .encoder_identity = encoder_identity(options.tokenizer),
      .log = &std::cerr,
      .log_is_terminal = is_terminal(STDERR_FILENO)};
  if (options.split_sentences) split_sentences(options, preprocess_options);
  if (options.sft) read_conversations(options, tokenizer, preprocess_options);
  const PreprocessSummary summary = preprocess(
      preprocess_options, [&](std::string_view text) { return tokenizer->encode(text); });
  if (summary.invalid_documents > 0)
    std::cerr << "note: documents with invalid UTF-8: " << summary.invalid_documents
              << " (the first is " << summary.first_invalid
              << "); invalid bytes were read as U+FFFD\n";
  if (summary.malformed_documents > 0) {
    std::cerr << "note: malformed documents skipped: " << summary.malformed_documents << "\n";
    for (const std::string& reason : summary.first_malformed) std::cerr << "  " << reason << "\n";
    if (static_cast<std::size_t>(summary.malformed_documents) > summary.first_malformed.size())
      std::cerr << "  ...\n";
  }
  if (summary.outputs[0].documents == 1)
    std::cerr << "note: this is one document, which --split cannot divide"
              << (summary.reads_text_files
                      ? "; --text-documents line makes every line of a .txt file a document\n"
                      : "\n");
  if (options.text_documents != DocumentKind::paragraph && !summary.reads_text_files)
    std::cerr << "note: --text-documents has no effect, because no input is a text file\n";
  const TokenDtype type = optimal_token_dtype(tokenizer->vocab_size());
  if (options.json) {
    std::cout << json_report(summary, type).dump() << "\n";
  } else {
    report(summary, type);
  }
  return 0;
}

}  // namespace megatron
