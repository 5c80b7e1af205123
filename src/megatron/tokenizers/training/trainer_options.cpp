#include "megatron/tokenizers/training/trainer_options.h"

#include <array>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/tokenizers/patterns.h"

namespace megatron {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kPatterns{{
    {"llama3", patterns::kLlama3},
    {"qwen", patterns::kQwen},
    {"cl100k", patterns::kCl100kInJson},
    {"o200k", patterns::kO200kBase},
    {"tekken", patterns::kTekken},
}};
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kTypes{{
    {"bert", "BertPreTokenizer"},
    {"whitespace", "Whitespace"},
    {"whitespace-split", "WhitespaceSplit"},
}};

JsonText byte_level(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

JsonText metaspace() {
  return {{"type", "Metaspace"},
          {"replacement", "\u2581"},
          {"prepend_scheme", "always"},
          {"split", true}};
}

JsonText bert_normalizer(bool lowercase) {
  return {{"type", "BertNormalizer"},
          {"clean_text", true},
          {"handle_chinese_chars", true},
          {"strip_accents", nullptr},
          {"lowercase", lowercase}};
}

/// The normalizer of the package's SentencePieceUnigramTokenizer.
JsonText sentencepiece_normalizer() {
  const JsonText spaces = {
      {"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}};
  return {{"type", "Sequence"},
          {"normalizers",
           JsonText::array({JsonText{{"type", "Nmt"}}, JsonText{{"type", "NFKC"}}, spaces})}};
}

}  // namespace

TokenizerTrainerOptions with_defaults(TokenizerTrainerOptions options) {
  const bool is_wordpiece = options.model == TrainedModel::wordpiece;
  if (!options.vocab_size)
    options.vocab_size = options.model == TrainedModel::unigram ? 8000 : 30000;
  if (!options.special_tokens) {
    options.special_tokens.emplace();
    if (is_wordpiece) options.special_tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  }
  if (options.unk_token.empty() && options.model != TrainedModel::byte_bpe)
    options.unk_token = is_wordpiece ? "[UNK]" : "<unk>";
  if (options.normalizer.empty())
    options.normalizer = options.model == TrainedModel::byte_bpe ? "none"
                         : is_wordpiece                          ? "bert"
                                                                 : "sentencepiece";
  if (options.pre_tokenizer.empty())
    options.pre_tokenizer = options.model == TrainedModel::byte_bpe ? "gpt2"
                            : is_wordpiece                          ? "bert"
                                                                    : "metaspace";
  return options;
}

JsonText normalizer_component(const TokenizerTrainerOptions& options) {
  const std::string& name = options.normalizer;
  if (name == "none") return nullptr;
  if (name == "nfc") return {{"type", "NFC"}};
  if (name == "nfkc") return {{"type", "NFKC"}};
  if (name == "lowercase") return {{"type", "Lowercase"}};
  if (name == "bert" || name == "bert-cased") return bert_normalizer(name == "bert");
  if (name == "sentencepiece") return sentencepiece_normalizer();
  throw UserError({"--normalizer names no normalizer", "'" + name + "'",
                   "give none, nfc, nfkc, lowercase, bert, bert-cased or sentencepiece"});
}

JsonText pre_tokenizer_component(const TokenizerTrainerOptions& options) {
  const bool is_byte_level = options.model == TrainedModel::byte_bpe;
  const std::string& name = options.pre_tokenizer;
  if (name == "gpt2" && is_byte_level) return byte_level(true);
  for (const auto& [known, type] : kTypes) {
    if (known != name) continue;
    if (is_byte_level) break;
    return {{"type", std::string(type)}};
  }
  if (name == "metaspace" && !is_byte_level) return metaspace();
  if (name == "none" && !is_byte_level) return nullptr;
  std::string pattern = name == "gpt2" ? std::string(patterns::kGpt2) : name;
  for (const auto& [known, text] : kPatterns)
    if (known == name) pattern = text;
  if (pattern == name && name.find_first_of("\\[(.|+*?{^$ ") == std::string::npos)
    throw UserError(
        {"--pre-tokenizer names none of --model's", "'" + name + "'",
         is_byte_level ? "give gpt2, llama3, qwen, cl100k, o200k, tekken or a regular expression"
                       : "give bert, whitespace, whitespace-split, metaspace, none, the name of a "
                         "pattern (gpt2, llama3, …) or a regular expression"});
  JsonText split = {{"type", "Split"},
                    {"pattern", {{"Regex", pattern}}},
                    {"behavior", "Isolated"},
                    {"invert", false}};
  if (!is_byte_level) return split;
  return {{"type", "Sequence"}, {"pretokenizers", JsonText::array({split, byte_level(false)})}};
}

JsonText decoder_component(const TokenizerTrainerOptions& options) {
  if (options.model == TrainedModel::byte_bpe)
    return {{"type", "ByteLevel"},
            {"add_prefix_space", true},
            {"trim_offsets", true},
            {"use_regex", true}};
  if (options.model == TrainedModel::wordpiece)
    return {
        {"type", "WordPiece"}, {"prefix", options.continuing_subword_prefix}, {"cleanup", true}};
  return options.pre_tokenizer == "metaspace" ? metaspace() : JsonText(nullptr);
}

}  // namespace megatron
