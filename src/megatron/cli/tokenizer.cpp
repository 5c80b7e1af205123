// Implements `megatron tokenizer train|info|diff`: trains, describes and compares tokenizers.
#include <algorithm>
#include <array>

#include "megatron/base/error.h"
#include "megatron/cli/command.h"
#include "megatron/cli/tokenizer_command.h"
#include "megatron/config/field_table.h"
#include "megatron/config/settings_tables.h"

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
  static const FieldTable<Trainer> table = [] {
    FieldTable<Trainer> t;
    t.group("Training");
    t.field("model", &Trainer::model, "model to train");
    t.field("vocab_size", &Trainer::vocab_size, "number of tokens").at_least(1).at_most(1 << 24);
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
        .at_least(1)
        .at_most(255);
    t.field("seed_size", &Trainer::seed_size, "unigram: number of pieces to begin with")
        .at_least(1)
        .at_most(1 << 24);
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
    return t;
  }();
  return table;
}

/// The flags that say how a tokenizer's file is read.
const FieldTable<TokenizerConfig>& tokenizer_name_table() {
  static const FieldTable<TokenizerConfig> table = [] {
    FieldTable<TokenizerConfig> t;
    for (const char* name : {"tokenizer_type", "tiktoken_pattern"}) {
      const Field* field = tokenizer_table().set().find_name(name);
      MEGATRON_CHECK(field != nullptr, "no setting of the tokenizer is called ", name);
      t.add_field(*field);
      t.group("Description and comparison");
    }
    return t;
  }();
  return table;
}

const FieldTable<Options>& tokenizer_command_table() {
  static const FieldTable<Options> table = [] {
    FieldTable<Options> t;
    t.about(
        "train FILE... trains a tokenizer as the `tokenizers` package does and writes "
        "tokenizer.json and tokenizer_config.json. info FILE describes a tokenizer, and with "
        "--text what it makes of a text. diff A B compares two tokenizers, and with --text what "
        "they make of it. A tokenizer is its file or folder.");
    t.field("action", &Options::operands, "train FILE..., info TOKENIZER or diff A B")
        .positional()
        .value_name("WORD");
    t.include(&Options::trainer, trainer_table());
    t.field("special_tokens", &Options::special_tokens,
            "a special token, or several with commas between them; they get the first ids")
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
    t.field("json_keys", &Options::json_keys,
            "fields of JSON lines that contain text; by default text")
        .repeatable()
        .value_name("KEY");
    t.field("text_documents", &Options::text_documents,
            "what is trained on at once in a .txt file: lines with their line ends, as the "
            "package reads files; or lines, paragraphs or whole files, as preprocess-data reads "
            "them");
    t.field("on_error", &Options::on_error,
            "what to do with a document that is malformed or no valid UTF-8")
        .choices({"stop", "skip"});
    t.field("workers", &Options::workers, "number of threads; the result is the same for any")
        .at_least(1)
        .at_most(1024);
    return t;
  }();
  return table;
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

/// Returns the words of values that may have commas between them.
std::vector<std::string> split_at_commas(const std::vector<std::string>& values) {
  std::vector<std::string> words;
  for (std::string_view rest : values) {
    while (!rest.empty()) {
      const std::string_view word = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      if (!word.empty()) words.emplace_back(word);
    }
  }
  return words;
}

}  // namespace

TextCorpusOptions TokenizerCommandOptions::corpus(std::vector<std::string> inputs) const {
  return {.inputs = std::move(inputs),
          .json_keys = json_keys,
          .text_documents = kind_of(text_documents),
          .workers = workers,
          .skip_malformed = on_error == "skip"};
}

const FieldSet& tokenizer_fields() { return tokenizer_command_table().set(); }

int run_tokenizer(std::span<const std::string> args) {
  Options options;
  parse_command_line(tokenizer_command_table(), args, options, "tokenizer");
  options.json_keys = split_at_commas(options.json_keys);
  if (options.json_keys.empty()) options.json_keys = {"text"};
  if (!options.special_tokens.empty())
    options.trainer.special_tokens = split_at_commas(options.special_tokens);
  const std::string action = options.operands.empty() ? "" : options.operands[0];
  if (action == "train") return run_tokenizer_train(options);
  if (action == "info") return run_tokenizer_info(options);
  if (action == "diff" || action == "compare") return run_tokenizer_diff(options);
  throw UserError({"the first word must be train, info or diff",
                   action.empty() ? "there is none" : action, "see megatron tokenizer --help"});
}

}  // namespace megatron
