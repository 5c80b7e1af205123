// Implements `megatron tokenizer train|info|diff`: trains, describes and compares tokenizers.
#include <algorithm>
#include <array>
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/cli/command.h"
#include "megatron/cli/tokenizer_command.h"
#include "megatron/config/field_table.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron {

template <>
struct EnumNames<TrainedModel> {
  static constexpr std::array<std::pair<std::string_view, TrainedModel>, 3> value{
      {{"byte-bpe", TrainedModel::byte_bpe},
       {"wordpiece", TrainedModel::wordpiece},
       {"unigram", TrainedModel::unigram}}};
};

template <>
struct EnumNames<InitialAlphabet> {
  static constexpr std::array<std::pair<std::string_view, InitialAlphabet>, 2> value{
      {{"bytes", InitialAlphabet::bytes}, {"text", InitialAlphabet::text}}};
};

template <>
struct EnumNames<InputFormat> {
  static constexpr std::array<std::pair<std::string_view, InputFormat>, 3> value{
      {{"by-name", InputFormat::by_name},
       {"text", InputFormat::text},
       {"json", InputFormat::json}}};
};

template <>
struct EnumNames<TrainingDocuments> {
  static constexpr std::array<std::pair<std::string_view, TrainingDocuments>, 4> value{
      {{"full-line", TrainingDocuments::full_line},
       {"line", TrainingDocuments::line},
       {"paragraph", TrainingDocuments::paragraph},
       {"file", TrainingDocuments::file}}};
};

namespace {

using Options = TokenizerCommandOptions;
using Trainer = TokenizerTrainerOptions;

const FieldTable<Trainer>& trainer_table() {
  return field_table<Trainer>([](auto& t) {
    t.group("Training");
    t.field("model", &Trainer::model, "model to train");
    t.field("vocab_size", &Trainer::vocab_size,
            "number of tokens; by default 8000 for unigram, 30000 for the others")
        .between(1, 1 << 24);
    t.field("min_frequency", &Trainer::min_frequency,
            "byte-bpe, wordpiece: least number of times that a merged pair occurs")
        .at_least(0);
    t.field("limit_alphabet", &Trainer::limit_alphabet,
            "byte-bpe, wordpiece: largest number of characters in the vocabulary; the rarest are "
            "left out")
        .at_least(1);
    t.field("initial_alphabet", &Trainer::initial_alphabet,
            "byte-bpe: put all bytes into the vocabulary, or only those of the text");
    t.field("max_token_length", &Trainer::max_token_length,
            "byte-bpe, wordpiece: largest number of characters of a merged token")
        .at_least(2);
    t.field("continuing_subword_prefix", &Trainer::continuing_subword_prefix,
            "wordpiece: prefix of the parts of a word after the first")
        .value_name("TEXT");
    t.field("unk_token", &Trainer::unk_token,
            "wordpiece, unigram: token of unknown characters; by default [UNK] and <unk>")
        .value_name("TOKEN");
    t.field("shrinking_factor", &Trainer::shrinking_factor,
            "unigram: share of the pieces that each pruning keeps")
        .above(0)
        .below(1);
    t.field("n_sub_iterations", &Trainer::n_sub_iterations,
            "unigram: iterations of EM before each pruning")
        .at_least(1);
    t.field("max_piece_length", &Trainer::max_piece_length,
            "unigram: largest number of characters of a piece")
        .between(1, 255);
    t.field("seed_size", &Trainer::seed_size, "unigram: number of pieces to begin with")
        .between(1, 1 << 24);
    t.field("normalizer", &Trainer::normalizer,
            "none, nfc, nfkc, lowercase, bert, bert-cased or sentencepiece; by default none for "
            "byte-bpe, bert for wordpiece, sentencepiece for unigram")
        .value_name("NAME");
    t.field("pre_tokenizer", &Trainer::pre_tokenizer,
            "what splits text into words: gpt2, llama3, qwen, cl100k, o200k, tekken or a regular "
            "expression, whose matches are words; for wordpiece and unigram also bert, "
            "whitespace, whitespace-split, metaspace or none; by default gpt2 for byte-bpe, bert "
            "for wordpiece, metaspace for unigram")
        .value_name("NAME|PATTERN");
  });
}

/// The flags that say how a tokenizer's file is read.
const FieldTable<TokenizerConfig>& tokenizer_name_table() {
  return field_table<TokenizerConfig>([](auto& t) {
    for (const char* name : {"tokenizer_type", "tiktoken_pattern"}) {
      const Field* field = tokenizer_table().set().find_name(name);
      MEGATRON_CHECK(field != nullptr, "no setting of the tokenizer is called ", name);
      t.add_field(*field);
      t.group("Description and comparison");
    }
  });
}

const FieldTable<Options>& tokenizer_command_table() {
  return field_table<Options>([](auto& t) {
    t.about(
        "train FILE... trains a tokenizer as the `tokenizers` package does and writes "
        "tokenizer.json and tokenizer_config.json. info FILE describes a tokenizer, and with "
        "--text what it makes of a text. diff A B compares two tokenizers, and with --text what "
        "they make of it. A tokenizer is its file or folder.");
    t.field("action", &Options::action, "what to do; compare is diff")
        .positional()
        .required()
        .choices({"train", "info", "diff", "compare"});
    t.field("files", &Options::files,
            "train: files of text, as preprocess-data reads them; info and diff: tokenizers")
        .positional()
        .value_name("FILE");
    t.include(&Options::trainer, trainer_table());
    t.group("Training");
    t.field("special_tokens", &Options::special_tokens,
            "a special token, or several with commas between them; they get the first ids; by "
            "default those of BERT for wordpiece, and none for the others")
        .repeatable()
        .value_name("TOKEN");
    t.field("output", &Options::output, "folder of the trained tokenizer").value_name("FOLDER");
    t.group("Description and comparison");
    t.field("text", &Options::text, "a file of text to encode, as train reads it; may be repeated")
        .repeatable()
        .value_name("FILE");
    t.field("json", &Options::json, "print JSON");
    t.include(&Options::tokenizer, tokenizer_name_table());
    t.group("Text");
    t.field("input_format", &Options::input_format,
            "what the files hold: text or JSON lines; by name, text if that ends in .txt (also "
            "with .gz or .zst), else JSON lines");
    t.field("json_keys", &Options::json_keys,
            "fields of JSON lines that contain text; by default text")
        .repeatable()
        .value_name("KEY");
    t.field("text_documents", &Options::text_documents,
            "what is trained on at once in a file of text: lines with their line ends, as the "
            "package reads files; or lines, paragraphs or whole files, as preprocess-data reads "
            "them");
    t.field("on_error", &Options::on_error,
            "what to do with a document that is malformed or no valid UTF-8")
        .choices({"stop", "skip"});
    t.field("workers", &Options::workers, "number of threads; the result is the same for any")
        .between(1, 1024);
  });
}

DocumentKind kind_of(TrainingDocuments documents) {
  switch (documents) {
    case TrainingDocuments::line:
      return DocumentKind::line;
    case TrainingDocuments::paragraph:
      return DocumentKind::paragraph;
    case TrainingDocuments::file:
      return DocumentKind::file;
    case TrainingDocuments::full_line:
      break;
  }
  return DocumentKind::full_line;
}

/// Returns the words of a flag's values, which may have commas between them.
std::vector<std::string> split_at_commas(const std::string& flag,
                                         const std::vector<std::string>& values) {
  std::vector<std::string> words;
  for (const std::string& value : values) {
    for (std::size_t begin = 0; begin <= value.size();) {
      const std::size_t end = std::min(value.find(',', begin), value.size());
      if (end == begin)
        throw UserError({flag + " '" + value + "' has an empty name", "",
                         "write names with one comma between them"});
      words.push_back(value.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return words;
}

struct FlagUse {
  std::string_view field, models;
};

/// The flags that not all models use, and the models.
constexpr std::array kModelFlags{FlagUse{"min_frequency", "byte-bpe wordpiece"},
                                 FlagUse{"limit_alphabet", "byte-bpe wordpiece"},
                                 FlagUse{"initial_alphabet", "byte-bpe"},
                                 FlagUse{"max_token_length", "byte-bpe wordpiece"},
                                 FlagUse{"continuing_subword_prefix", "wordpiece"},
                                 FlagUse{"unk_token", "wordpiece unigram"},
                                 FlagUse{"shrinking_factor", "unigram"},
                                 FlagUse{"n_sub_iterations", "unigram"},
                                 FlagUse{"max_piece_length", "unigram"},
                                 FlagUse{"seed_size", "unigram"}};

/// Throws a UserError for a flag that the action or the model does not use.
void refuse_unused_flags(const Options& options, const ParseResult& parsed) {
  const bool trains = options.action == "train";
  const auto refuse = [](const Field& field, const std::string& of) {
    throw UserError({field.flag() + " is not for " + of, "", "leave it out"});
  };
  for (const Field& field : tokenizer_command_table().set().fields) {
    if (!parsed.is_set(field.name) || field.is_positional) continue;
    const bool is_for_training = field.group == "Training";
    const bool is_for_others = field.name == "text" || field.name == "json" ||
                               field.name == "tokenizer_type" || field.name == "tiktoken_pattern";
    if (trains ? is_for_others : is_for_training) refuse(field, options.action);
    if (!trains && field.group == "Text" && options.text.empty())
      refuse(field, options.action + " without --text");
  }
  if (!trains) return;
  const std::string model = write_values(options.trainer.model).front();
  for (const auto& [name, models] : kModelFlags)
    if (parsed.is_set(name) && models.find(model) == std::string_view::npos)
      refuse(*tokenizer_command_table().set().find_name(name), "--model " + model);
}

}  // namespace

TextCorpusOptions TokenizerCommandOptions::corpus(std::vector<std::string> inputs) const {
  return {.inputs = std::move(inputs),
          .flag = action == "train" ? "FILE" : "--text",
          .format = input_format,
          .json_keys = json_keys,
          .text_documents = kind_of(text_documents),
          .workers = workers,
          .skip_malformed = on_error == "skip"};
}

const FieldSet& tokenizer_fields() { return tokenizer_command_table().set(); }

int run_tokenizer(std::span<const std::string> args) {
  Options options;
  const ParseResult parsed =
      parse_command_line(tokenizer_command_table(), args, options, "tokenizer");
  std::cerr << notes_text(parsed.notes);
  refuse_unused_flags(options, parsed);
  options.json_keys = split_at_commas("--json-keys", options.json_keys);
  if (options.json_keys.empty()) options.json_keys = {"text"};
  if (!options.special_tokens.empty())
    options.trainer.special_tokens = split_at_commas("--special-tokens", options.special_tokens);
  if (options.action == "train") return run_tokenizer_train(options);
  return options.action == "info" ? run_tokenizer_info(options) : run_tokenizer_diff(options);
}

}  // namespace megatron
