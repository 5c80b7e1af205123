// Selects the tokenizer to open, by --tokenizer-type or from the files.
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/byte_tokenizer.h"
#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"
#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"
#include "megatron/tokenizers/null_tokenizer.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {
namespace {

const char* const kSupported =
    "supported are NullTokenizer, ByteTokenizer, GPT2BPETokenizer and HuggingFaceTokenizer "
    "(tokenizer.json with a BPE model)";

[[noreturn]] void throw_unsupported(const std::string& what) {
  throw UserError({what, "", kSupported});
}

[[noreturn]] void refuse_sentencepiece(const fs::path& path) {
  throw UserError({path.string() + " is a SentencePiece model, which cannot be read yet", "",
                   "give the tokenizer.json of the same model; transformers' "
                   "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) writes one"});
}

/// Returns whether the first line is "base64 rank", as in tiktoken files.
bool looks_like_tiktoken(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\n'));
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return false;
  const auto is_base64 = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/' || c == '=';
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(space), is_base64) &&
         space + 1 < line.size() &&
         std::all_of(line.begin() + static_cast<std::ptrdiff_t>(space) + 1, line.end(), is_digit);
}

/// Returns whether `head` begins like a SentencePiece model, a protobuf whose field 1 is a short
/// message with text in its own field 1.
bool looks_like_sentencepiece(std::string_view head) {
  return head.size() > 4 && head[0] == '\x0A' && static_cast<unsigned char>(head[1]) < 0x80 &&
         head[2] == '\x0A' && head[3] < head[1];
}

/// Throws a UserError that names the format of other tokenizers before they are parsed as JSON or
/// lines.
void reject_other_formats(const fs::path& path) {
  if (!fs::is_regular_file(path)) return;
  const std::string content = read_file(path);
  if (looks_like_sentencepiece(content)) refuse_sentencepiece(path);
  if (looks_like_tiktoken(content))
    throw_unsupported(path.string() + " is a tiktoken vocabulary, which cannot be read yet");
}

[[noreturn]] void refuse_folder(const fs::path& folder) {
  for (const char* name : {"tokenizer.model", "spiece.model"})
    if (fs::exists(folder / name)) refuse_sentencepiece(folder / name);
  throw UserError({"--tokenizer-model " + folder.string() +
                       " holds no tokenizer.json and no vocab.json with merges.txt",
                   "", kSupported});
}

std::unique_ptr<Tokenizer> open_null(const TokenizerConfig& config) {
  if (!config.vocab_size)
    throw UserError({"NullTokenizer needs --vocab-size", "",
                     "give --vocab-size N: ids 0 to N-1, of which N-1 ends a document"});
  return std::make_unique<NullTokenizer>(*config.vocab_size);
}

std::unique_ptr<Tokenizer> open_byte(const TokenizerConfig&) {
  return std::make_unique<ByteTokenizer>();
}

std::unique_ptr<Tokenizer> open_gpt2(const TokenizerConfig& config) {
  const Gpt2Files files = gpt2_files(config);
  reject_other_formats(files.vocab);
  return std::make_unique<Gpt2BpeTokenizer>(files.vocab, files.merges);
}

std::unique_ptr<Tokenizer> open_hugging_face(const TokenizerConfig& config) {
  const std::string& model = config.tokenizer_model;
  if (model.empty())
    throw UserError({"HuggingFaceTokenizer needs --tokenizer-model", "",
                     "give a tokenizer.json or a folder that holds one"});
  if (!fs::exists(model))
    throw UserError({"--tokenizer-model " + model + " does not exist", "",
                     "give a tokenizer.json or a folder that holds one; names on the Hugging Face "
                     "hub are not downloaded"});
  if (fs::is_directory(model) && !fs::exists(fs::path(model) / "tokenizer.json"))
    refuse_folder(model);
  reject_other_formats(fs::is_directory(model) ? fs::path(model) / "tokenizer.json"
                                               : fs::path(model));
  return std::make_unique<HuggingFaceTokenizer>(model);
}

struct Kind {
  std::string_view name;
  std::unique_ptr<Tokenizer> (*open)(const TokenizerConfig&);
};

constexpr std::array kKinds = {Kind{"NullTokenizer", open_null}, Kind{"ByteTokenizer", open_byte},
                               Kind{"GPT2BPETokenizer", open_gpt2},
                               Kind{"HuggingFaceTokenizer", open_hugging_face}};

std::string_view detect_file_type(const fs::path& path) {
  const std::string content = read_file(path);
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string::npos)
    throw UserError(
        {"--tokenizer-model " + path.string() + " is empty", "", "check that the file is whole"});
  if (content[first] == '{') {
    const Json root = parse_json(content, path.string());
    if (root.contains("model") && root.at("model").is_object()) return "HuggingFaceTokenizer";
    if (path.filename() == "vocab.json" || fs::exists(path.parent_path() / "merges.txt"))
      return "GPT2BPETokenizer";
    throw UserError({path.string() + ": field 'model' is missing", "",
                     "give a tokenizer.json, or vocab.json beside merges.txt"});
  }
  reject_other_formats(path);
  throw_unsupported("--tokenizer-model " + path.string() + " is of no known kind");
}

std::string_view detect_tokenizer_type(const TokenizerConfig& config) {
  const fs::path model = config.tokenizer_model;
  if (model.empty()) {
    if (!config.vocab_file.empty() && !config.merge_file.empty()) return "GPT2BPETokenizer";
    throw UserError(
        {"no tokenizer is given", "", "give --tokenizer-model FILE or --tokenizer-type TYPE"});
  }
  if (!fs::exists(model))
    throw UserError(
        {"--tokenizer-model " + model.string() + " does not exist", "", "check the path"});
  if (!fs::is_directory(model)) return detect_file_type(model);
  if (fs::exists(model / "tokenizer.json")) return "HuggingFaceTokenizer";
  if (fs::exists(model / "vocab.json") && fs::exists(model / "merges.txt"))
    return "GPT2BPETokenizer";
  refuse_folder(model);
}

}  // namespace

bool has_tokenizer(const TokenizerConfig& config) {
  return !config.tokenizer_type.empty() || !config.tokenizer_model.empty() ||
         !config.vocab_file.empty();
}

std::string tokenizer_type(const TokenizerConfig& config) {
  return config.tokenizer_type.empty() ? std::string(detect_tokenizer_type(config))
                                       : config.tokenizer_type;
}

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerConfig& config) {
  const std::string type = tokenizer_type(config);
  for (const Kind& kind : kKinds)
    if (kind.name == type) return kind.open(config);
  throw_unsupported("--tokenizer-type " + type + " is not supported");
}

}  // namespace megatron
