// Which tokenizer to open: by --tokenizer-type, or recognised from the files.
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

namespace megatron {
namespace {

const char* const kSupported =
    "supported are NullTokenizer, ByteTokenizer, GPT2BPETokenizer and HuggingFaceTokenizer (tokenizer.json with a BPE model)";

std::unique_ptr<Tokenizer> open_null(const TokenizerConfig& config) {
  if (!config.vocab_size)
    throw UserError({"NullTokenizer needs --vocab-size", "", "give --vocab-size N: ids 0 to N-1, of which N-1 ends a document"});
  return std::make_unique<NullTokenizer>(*config.vocab_size);
}

std::unique_ptr<Tokenizer> open_byte(const TokenizerConfig&) { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> open_gpt2(const TokenizerConfig& config) {
  fs::path vocab = config.vocab_file, merges = config.merge_file;
  if (!config.tokenizer_model.empty()) {
    const fs::path folder =
        fs::is_directory(config.tokenizer_model) ? fs::path(config.tokenizer_model) : fs::path(config.tokenizer_model).parent_path();
    if (vocab.empty()) vocab = fs::is_directory(config.tokenizer_model) ? folder / "vocab.json" : fs::path(config.tokenizer_model);
    if (merges.empty()) merges = folder / "merges.txt";
  }
  if (vocab.empty() || merges.empty())
    throw UserError({"GPT2BPETokenizer needs --vocab-file and --merge-file", "", "give vocab.json and merges.txt"});
  return std::make_unique<Gpt2BpeTokenizer>(vocab, merges);
}

std::unique_ptr<Tokenizer> open_hugging_face(const TokenizerConfig& config) {
  const std::string& model = config.tokenizer_model;
  if (model.empty()) throw UserError({"HuggingFaceTokenizer needs --tokenizer-model", "", "give a tokenizer.json or a folder that holds one"});
  if (!fs::exists(model))
    throw UserError({"--tokenizer-model " + model + " does not exist", "",
                     "give a tokenizer.json or a folder that holds one; names on the Hugging Face hub are not downloaded"});
  return std::make_unique<HuggingFaceTokenizer>(model);
}

struct Kind {
  std::string_view name;
  std::unique_ptr<Tokenizer> (*open)(const TokenizerConfig&);
};

constexpr std::array kKinds = {Kind{"NullTokenizer", open_null}, Kind{"ByteTokenizer", open_byte}, Kind{"GPT2BPETokenizer", open_gpt2},
                               Kind{"HuggingFaceTokenizer", open_hugging_face}};

[[noreturn]] void unsupported(const std::string& what) { throw UserError({what, "", kSupported}); }

/// tiktoken files are lines of "base64 rank".
bool looks_like_tiktoken(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\n'));
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos || space == 0) return false;
  const auto is_base64 = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '/' || c == '='; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::all_of(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(space), is_base64) && space + 1 < line.size() &&
         std::all_of(line.begin() + static_cast<std::ptrdiff_t>(space) + 1, line.end(), is_digit);
}

std::string_view recognise_file(const fs::path& path) {
  const std::string content = read_file(path);
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) throw UserError({"--tokenizer-model " + path.string() + " is empty", "", "check that the file is whole"});
  if (content[first] == '{') {
    const Json root = parse_json(content, path.string());
    if (root.contains("model") && root.at("model").is_object()) return "HuggingFaceTokenizer";
    if (path.filename() == "vocab.json" || fs::exists(path.parent_path() / "merges.txt")) return "GPT2BPETokenizer";
    throw UserError({path.string() + ": field 'model' is missing", "", "give a tokenizer.json, or vocab.json beside merges.txt"});
  }
  if (looks_like_tiktoken(content)) unsupported("--tokenizer-model " + path.string() + " is a tiktoken vocabulary, which is not supported");
  if (content[0] == '\x0A') unsupported("--tokenizer-model " + path.string() + " is a SentencePiece model, which is not supported");
  unsupported("--tokenizer-model " + path.string() + " is of no known kind");
}

std::string_view recognise(const TokenizerConfig& config) {
  const fs::path model = config.tokenizer_model;
  if (model.empty()) {
    if (!config.vocab_file.empty() && !config.merge_file.empty()) return "GPT2BPETokenizer";
    throw UserError({"no tokenizer is given", "", "give --tokenizer-model FILE or --tokenizer-type TYPE"});
  }
  if (!fs::exists(model)) throw UserError({"--tokenizer-model " + model.string() + " does not exist", "", "check the path"});
  if (!fs::is_directory(model)) return recognise_file(model);
  if (fs::exists(model / "tokenizer.json")) return "HuggingFaceTokenizer";
  if (fs::exists(model / "vocab.json") && fs::exists(model / "merges.txt")) return "GPT2BPETokenizer";
  throw UserError({"--tokenizer-model " + model.string() + " holds no tokenizer.json and no vocab.json with merges.txt", "", kSupported});
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const TokenizerConfig& config) {
  const std::string_view type = config.tokenizer_type.empty() ? recognise(config) : std::string_view(config.tokenizer_type);
  for (const Kind& kind : kKinds)
    if (kind.name == type) return kind.open(config);
  unsupported("--tokenizer-type " + std::string(type) + " is not supported");
}

}  // namespace megatron
