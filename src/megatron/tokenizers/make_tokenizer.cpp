// Selects the tokenizer to open, by --tokenizer-type or from the files, and has those of bytes and
// of bare ids.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <limits>
#include <optional>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/bert_tokenizer.h"
#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"
#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"
#include "megatron/tokenizers/multimodal_tokenizer.h"
#include "megatron/tokenizers/recognize_file.h"
#include "megatron/tokenizers/sentencepiece/sentencepiece_tokenizer.h"
#include "megatron/tokenizers/tiktoken/tiktoken_tokenizer.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"
#include "megatron/tokenizers/tokenizer_metadata.h"

namespace megatron {
namespace {

namespace fs = std::filesystem;

/// A tokenizer with one token per byte, which needs no files and reproduces any content exactly.
/// Ids 0 to 255 are the bytes; 256 is eod.
class ByteTokenizer : public Tokenizer {
 public:
  std::vector<std::int32_t> encode(std::string_view text) const override;
  /// Returns the bytes, which may be invalid UTF-8.
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override;
  std::int64_t vocab_size() const override { return 257; }
  std::int32_t eod() const override { return 256; }
  std::string token(std::int32_t id) const override;
  bool accepts_invalid_utf8() const override { return true; }
  std::string_view name() const override { return "ByteTokenizer"; }
};

std::vector<std::int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
  return ids;
}

std::string ByteTokenizer::decode(std::span<const std::int32_t> ids, SpecialTokens) const {
  std::string text;
  for (const std::int32_t id : ids)
    if (id >= 0 && id < 256) text.push_back(static_cast<char>(id));
  return text;
}

std::string ByteTokenizer::token(std::int32_t id) const {
  if (id == eod()) return kByteTokenizerEod;
  return id >= 0 && id < 256 ? std::string(1, static_cast<char>(id)) : "";
}

/// A tokenizer for benchmarks and tests. Its text is the decimal ids, 0 to N−1, separated by
/// spaces; N is `vocab_size`.
class NullTokenizer : public Tokenizer {
 public:
  struct Ids {
    std::optional<std::int64_t> eod = {};  ///< none: N−1
    std::int64_t pad = -1;                 ///< −1: there is none
  };
  /// Throws a UserError when `vocab_size` is less than 1 or an id is not less than it.
  NullTokenizer(std::int64_t vocab_size, const Ids& ids);
  /// Throws a UserError for a word that is not an id.
  std::vector<std::int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const std::int32_t> ids, SpecialTokens special) const override;
  std::int64_t vocab_size() const override { return vocab_size_; }
  std::int32_t eod() const override { return eod_; }
  std::int32_t pad() const override { return pad_; }
  std::string token(std::int32_t id) const override { return std::to_string(id); }
  std::string token_bytes(std::int32_t) const override { return ""; }
  std::string_view name() const override { return "NullTokenizer"; }

 private:
  std::int64_t vocab_size_;
  std::int32_t eod_, pad_;
};

NullTokenizer::NullTokenizer(std::int64_t vocab_size, const Ids& ids) : vocab_size_(vocab_size) {
  if (vocab_size < 1 || vocab_size > std::numeric_limits<std::int32_t>::max())
    throw UserError({"--vocab-size of NullTokenizer must be from 1 to 2147483647",
                     std::to_string(vocab_size), ""});
  const auto checked = [&](const char* flag, std::int64_t id) {
    if (id < -1 || id >= vocab_size)
      throw UserError({std::string(flag) + " must be less than --vocab-size", std::to_string(id),
                       "--vocab-size " + std::to_string(vocab_size) + " has the ids 0 to " +
                           std::to_string(vocab_size - 1)});
    return static_cast<std::int32_t>(id);
  };
  eod_ = checked("--null-tokenizer-eod-id", ids.eod.value_or(vocab_size - 1));
  pad_ = checked("--null-tokenizer-pad-id", ids.pad);
}

std::vector<std::int32_t> NullTokenizer::encode(std::string_view text) const {
  constexpr std::string_view kSpaces = " \t\r\n\f\v";
  std::vector<std::int32_t> ids;
  for (std::size_t at = text.find_first_not_of(kSpaces); at != std::string_view::npos;
       at = text.find_first_not_of(kSpaces, at)) {
    const std::size_t end = std::min(text.find_first_of(kSpaces, at), text.size());
    std::int32_t id = -1;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, id);
    if (error != std::errc() || stop != text.data() + end || id < 0 || id >= vocab_size_) {
      throw UserError(
          {"NullTokenizer reads ids from 0 to " + std::to_string(vocab_size_ - 1) +
               " separated by spaces",
           "\"" + std::string(text.substr(at, std::min<std::size_t>(end - at, 40))) + "\"",
           "use another --tokenizer-type for text, or a larger --vocab-size"});
    }
    ids.push_back(id);
    at = end;
  }
  return ids;
}

std::string NullTokenizer::decode(std::span<const std::int32_t> ids, SpecialTokens) const {
  return joined_text(ids, " ");
}

std::unique_ptr<Tokenizer> open_null(const TokenizerConfig& config, std::string_view type) {
  if (!config.vocab_size)
    throw UserError({std::string(type) + " needs --vocab-size", "",
                     "give --vocab-size N: ids 0 to N-1, of which N-1 ends a document"});
  return std::make_unique<NullTokenizer>(
      *config.vocab_size,
      NullTokenizer::Ids{.eod = config.null_tokenizer_eod_id, .pad = config.null_tokenizer_pad_id});
}

/// Megatron-LM counts the end of a document behind --vocab-size here.
std::unique_ptr<Tokenizer> open_null_multimodal(const TokenizerConfig& config,
                                                std::string_view type) {
  TokenizerConfig with_end = config;
  if (with_end.vocab_size) ++*with_end.vocab_size;
  with_end.null_tokenizer_eod_id.reset();
  with_end.null_tokenizer_pad_id = TokenizerConfig{}.null_tokenizer_pad_id;
  return open_null(with_end, type);
}

std::unique_ptr<Tokenizer> open_byte(const TokenizerConfig&, std::string_view) {
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> open_gpt2(const TokenizerConfig& config, std::string_view) {
  const Gpt2Files files = gpt2_files(config);
  check_tokenizer_file(files.vocab, "GPT2BPETokenizer");
  return std::make_unique<Gpt2BpeTokenizer>(files.vocab, files.merges);
}

/// Returns the tokenizer.json of --tokenizer-model.
fs::path tokenizer_json_file(const TokenizerConfig& config, std::string_view type) {
  const std::string& model = config.tokenizer_model;
  if (model.empty())
    throw UserError({std::string(type) + " needs --tokenizer-model", "",
                     "give a tokenizer.json or a folder that holds one"});
  if (!fs::exists(model))
    throw UserError({"--tokenizer-model " + model + " does not exist", "",
                     "give a tokenizer.json or a folder that holds one; names on the Hugging Face "
                     "hub are not downloaded"});
  const fs::path file = fs::is_directory(model) ? tokenizer_file_in(model) : fs::path(model);
  check_tokenizer_file(file, "HuggingFaceTokenizer");
  return file;
}

std::unique_ptr<Tokenizer> open_hugging_face(const TokenizerConfig& config, std::string_view type) {
  auto tokenizer = std::make_unique<HuggingFaceTokenizer>(tokenizer_json_file(config, type),
                                                          config.tokenizer_special_tokens);
  if (config.tokenizer_hf_no_include_special_tokens && type != "SFTTokenizer")
    tokenizer->leave_out_special_tokens();
  return tokenizer;
}

std::unique_ptr<Tokenizer> open_multimodal(const TokenizerConfig& config, std::string_view type) {
  return std::make_unique<MultimodalTokenizer>(tokenizer_json_file(config, type), config);
}

/// Returns the configuration with the file of --tokenizer-model in place of its folder.
TokenizerConfig with_file(TokenizerConfig config, std::string_view type) {
  fs::path model = config.tokenizer_model;
  if (model.empty())
    throw UserError({std::string(type) + " needs --tokenizer-model", "",
                     "add --tokenizer-model with the tokenizer's file or its folder"});
  if (!fs::exists(model))
    throw UserError(
        {"--tokenizer-model " + model.string() + " does not exist", "", "check the path"});
  if (fs::is_directory(model)) model = tokenizer_file_in(model, type);
  check_tokenizer_file(model, type);
  config.tokenizer_model = model.string();
  return config;
}

std::unique_ptr<Tokenizer> open_tiktoken(const TokenizerConfig& config, std::string_view) {
  return std::make_unique<TiktokenTokenizer>(with_file(config, "TikTokenizer"));
}

std::unique_ptr<Tokenizer> open_sentencepiece(const TokenizerConfig& config,
                                              std::string_view type) {
  return std::make_unique<SentencePieceTokenizer>(
      with_file(config, "SentencePieceTokenizer").tokenizer_model, type);
}

std::unique_ptr<Tokenizer> open_bert(const TokenizerConfig& config, std::string_view type) {
  fs::path file = config.vocab_file.empty() ? config.tokenizer_model : config.vocab_file;
  if (file.empty())
    throw UserError({std::string(type) + " needs --vocab-file", "", "add --vocab-file vocab.txt"});
  if (fs::is_directory(file)) file = tokenizer_file_in(file, type);
  check_tokenizer_file(file, type);
  return std::make_unique<BertTokenizer>(
      file, type == "BertWordPieceLowerCase",
      config.vocab_size.value_or(std::numeric_limits<std::int64_t>::max()));
}

constexpr std::string_view kMultimodalTokenizer = "MultimodalTokenizer";

/// Refuses flags that a recognized type does not read. With --tokenizer-type they have a note.
void refuse_unread_flags(const TokenizerConfig& config, const std::string& type) {
  for (const Field& field : tokenizer_table().set().fields) {
    if (!config.tokenizer_type.empty() || field.is_read_with(type) ||
        field.get(&config) == field.default_values)
      continue;
    const std::string reader(field.read_with_values[0]);
    throw UserError({field.flag() + " has an effect only with " + reader,
                     "the tokenizer is a " + type,
                     "add --tokenizer-type " + reader + ", or leave the flag out"});
  }
  if (!config.tokenizer_special_tokens.empty() && !reads_tokenizer_json(type) &&
      type != "TikTokenizer")
    throw UserError(
        {"--tokenizer-special-tokens adds tokens to a tokenizer.json or a TikTokenizer only",
         "the tokenizer is a " + type,
         "use a tokenizer.json that was converted from this tokenizer, or leave the flag out"});
}

struct Kind {
  std::string_view name;
  std::unique_ptr<Tokenizer> (*open)(const TokenizerConfig&, std::string_view type);
};

constexpr std::array kKinds = {Kind{"NullTokenizer", open_null},
                               Kind{"ByteTokenizer", open_byte},
                               Kind{"GPT2BPETokenizer", open_gpt2},
                               Kind{"HuggingFaceTokenizer", open_hugging_face},
                               Kind{"TikTokenizer", open_tiktoken},
                               Kind{"SentencePieceTokenizer", open_sentencepiece},
                               Kind{"GPTSentencePieceTokenizer", open_sentencepiece},
                               Kind{"Llama2Tokenizer", open_sentencepiece},
                               Kind{"BertWordPieceLowerCase", open_bert},
                               Kind{"BertWordPieceCase", open_bert},
                               Kind{"SFTTokenizer", open_hugging_face},
                               Kind{kMultimodalTokenizer, open_multimodal},
                               Kind{"NullMultimodalTokenizer", open_null_multimodal}};

std::string_view detect_tokenizer_type(const TokenizerConfig& config) {
  const fs::path model = config.tokenizer_model;
  if (model.empty()) {
    if (!config.vocab_file.empty() && !config.merge_file.empty()) return "GPT2BPETokenizer";
    if (!config.vocab_file.empty()) return recognize_tokenizer_file(config.vocab_file);
    throw UserError(
        {"no tokenizer is given", "", "give --tokenizer-model FILE or --tokenizer-type TYPE"});
  }
  if (!fs::exists(model))
    throw UserError(
        {"--tokenizer-model " + model.string() + " does not exist", "", "check the path"});
  if (!fs::is_directory(model)) return recognize_tokenizer_file(model);
  const fs::path file = tokenizer_file_in(model);
  return file == model ? "GPT2BPETokenizer" : recognize_tokenizer_file(file);
}

}  // namespace

bool has_tokenizer(const TokenizerConfig& config) {
  return config.has_type_or_model() || !config.vocab_file.empty();
}

TokenizerConfig with_resolved_type(TokenizerConfig config) {
  if (!config.tokenizer_metadata.empty()) config.tokenizer_type = tokenizer_type(config);
  return config;
}

std::string tokenizer_type(const TokenizerConfig& config) {
  const std::string& flag = config.tokenizer_type;
  const auto detected = [&] { return std::string(detect_tokenizer_type(config)); };
  if (config.tokenizer_metadata.empty()) return flag.empty() ? detected() : flag;
  const TokenizerMetadata metadata = read_tokenizer_metadata(config.tokenizer_metadata);
  if (flag.empty() && !metadata.default_type().empty()) return std::string(metadata.default_type());
  const std::string type = flag.empty() ? detected() : flag;
  if (!metadata.allows(type))
    throw UserError({config.tokenizer_metadata + ": library '" + metadata.library +
                         "' is not that of " +
                         (flag.empty() ? "the files, a " : "--tokenizer-type ") + type,
                     "", "leave one of the two out"});
  return type;
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerConfig& config,
                                          std::string_view default_type) {
  std::string type(default_type);
  if (type.empty() || has_tokenizer(config)) type = tokenizer_type(config);
  refuse_unread_flags(config, type);
  for (const Kind& kind : kKinds)
    if (kind.name == type) return kind.open(config, kind.name);
  throw UserError({"--tokenizer-type " + type + " is not supported", "",
                   "supported are " + joined_text(kKinds, ", ", &Kind::name)});
}

}  // namespace megatron
