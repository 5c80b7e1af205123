#include "megatron/tokenizers/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json_fwd.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/chat/chat_files.h"
#include "megatron/tokenizers/recognize_file.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_metadata.h"

namespace megatron {
namespace {

constexpr const char* kTiktokenLines = "vocab.tiktoken";
constexpr const char* kTiktokenList = "vocab.tiktoken.json";

constexpr std::array kNames{"tokenizer.json",
                            "tokenizer_config.json",
                            "special_tokens_map.json",
                            "tokenizer.model",
                            "tekken.json",
                            kTiktokenLines,
                            kTiktokenList,
                            "vocab.txt",
                            "vocab.json",
                            "merges.txt",
                            "added_tokens.json",
                            "chat_template.jinja",
                            "chat_template.json"};

using Files = std::map<std::string, std::string>;

/// Adds the tokenizer files of `folder` that `files` does not contain yet, except for `others`,
/// which belong to tokenizers of another type.
void add_neighbours(const fs::path& folder, std::span<const std::string_view> others,
                    Files& files) {
  for (const char* name : kNames) {
    const bool is_other = std::find(others.begin(), others.end(), name) != others.end();
    if (!is_other && !files.contains(name) && fs::is_regular_file(folder / name))
      files[name] = read_file(folder / name);
  }
}

/// Returns the name under which a tiktoken vocabulary is recognized again.
std::string tiktoken_name(std::string_view content) {
  const std::size_t first = content.find_first_not_of(" \t\r\n");
  const char c = first == std::string_view::npos ? '\0' : content[first];
  return c == '{' ? "tekken.json" : c == '[' ? kTiktokenList : kTiktokenLines;
}

/// Returns the file of --tokenizer-model, which may name its folder, for a tokenizer of `type`.
fs::path model_file(const TokenizerConfig& config, std::string_view type) {
  const fs::path model = config.tokenizer_model;
  return fs::is_directory(model) ? tokenizer_file_in(model, type) : model;
}

/// Returns the folder of the tokenizer's files; "" without files.
fs::path tokenizer_folder(const TokenizerConfig& config) {
  fs::path file = config.tokenizer_model.empty() ? config.vocab_file : config.tokenizer_model;
  if (file.empty() || fs::is_directory(file)) return file;
  return parent_of(file);
}

}  // namespace

std::span<const char* const> tokenizer_file_names() { return kNames; }

Gpt2Files gpt2_files(const TokenizerConfig& config) {
  Gpt2Files files{config.vocab_file, config.merge_file};
  if (!config.tokenizer_model.empty()) {
    const fs::path model = config.tokenizer_model;
    const fs::path folder = fs::is_directory(model) ? model : model.parent_path();
    if (files.vocab.empty()) files.vocab = fs::is_directory(model) ? folder / "vocab.json" : model;
    if (files.merges.empty()) files.merges = folder / "merges.txt";
  }
  if (files.vocab.empty() || files.merges.empty())
    throw UserError({"GPT2BPETokenizer needs --vocab-file and --merge-file", "",
                     "give vocab.json and merges.txt"});
  return files;
}

std::vector<fs::path> tokenizer_paths(const TokenizerConfig& config) {
  std::vector<fs::path> paths;
  if (const fs::path folder = tokenizer_folder(config); !folder.empty()) {
    for (const char* name : kNames) paths.push_back(folder / name);
    for (const char* name : {"spiece.model", "sentencepiece.bpe.model"})
      paths.push_back(folder / name);
  }
  for (const std::string& file : {config.tokenizer_model, config.vocab_file, config.merge_file,
                                  config.tokenizer_metadata, config.chat_template})
    if (fs::is_regular_file(file)) paths.emplace_back(file);
  return paths;
}

ChatFiles chat_files(const TokenizerConfig& config) {
  ChatFiles files{.folder = tokenizer_folder(config), .choice = config.chat_template};
  const std::string& metadata = config.tokenizer_metadata;
  if (!metadata.empty() && read_tokenizer_metadata(metadata).has_chat_template)
    files.metadata = metadata;
  return files;
}

bool reads_tokenizer_json(std::string_view type) {
  return type == "HuggingFaceTokenizer" || type == "SFTTokenizer" || type == "MultimodalTokenizer";
}

Files tokenizer_files(const TokenizerConfig& config) {
  Files files;
  if (!has_tokenizer(config)) return files;
  const std::string type = tokenizer_type(config);
  if (type == "GPT2BPETokenizer") {
    const auto [vocab, merges] = gpt2_files(config);
    files = {{"vocab.json", read_file(vocab)}, {"merges.txt", read_file(merges)}};
    constexpr std::array<std::string_view, 2> kOthers{"tokenizer.json", "tokenizer.model"};
    if (vocab.filename() == "vocab.json") add_neighbours(vocab.parent_path(), kOthers, files);
  } else if (reads_tokenizer_json(type)) {
    const fs::path model = config.tokenizer_model;
    const bool is_folder = fs::is_directory(model);
    files = {{"tokenizer.json", read_file(is_folder ? model / "tokenizer.json" : model)}};
    add_neighbours(is_folder ? model : model.parent_path(), {}, files);
  } else if (type == "TikTokenizer") {
    std::string content = read_file(model_file(config, type));
    const std::string name = tiktoken_name(content);
    files = {{name, std::move(content)}};
  } else if (reads_sentencepiece(type)) {
    files = {{"tokenizer.model", read_file(model_file(config, type))}};
  } else if (type.starts_with("BertWordPiece")) {
    const fs::path file =
        config.vocab_file.empty() ? model_file(config, type) : fs::path(config.vocab_file);
    files = {{"vocab.txt", read_file(file)}};
  }
  const ChatFiles chat = chat_files(config);
  if (!files.empty() && chat.has_template())
    files["chat_template.jinja"] = find_chat_template(chat, /*has_tools=*/false).text;
  return files;
}

std::string byte_tokenizer_json() {
  constexpr std::int32_t kEnd = 256;
  Json vocabulary = Json::object();
  for (std::int32_t byte = 0; byte < kEnd; ++byte) {
    std::string token;
    append_byte_level(token, std::string(1, static_cast<char>(byte)));
    vocabulary[token] = byte;
  }
  const Json end = {
      {"id", kEnd},      {"content", kByteTokenizerEod}, {"single_word", false}, {"lstrip", false},
      {"rstrip", false}, {"normalized", false},          {"special", true}};
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const Json model = {{"type", "BPE"},
                      {"dropout", nullptr},
                      {"unk_token", nullptr},
                      {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr},
                      {"fuse_unk", false},
                      {"byte_fallback", false},
                      {"ignore_merges", false},
                      {"vocab", vocabulary},
                      {"merges", Json::array()}};
  const Json root = {
      {"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
      {"added_tokens", {end}},     {"normalizer", nullptr}, {"pre_tokenizer", byte_level},
      {"post_processor", nullptr}, {"decoder", byte_level}, {"model", model}};
  return root.dump(2) + "\n";
}

}  // namespace megatron
