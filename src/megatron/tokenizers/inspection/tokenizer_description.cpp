#include "megatron/tokenizers/inspection/tokenizer_description.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/hugging_face/tokenizer_json.h"
#include "megatron/tokenizers/inspection/component_words.h"
#include "megatron/tokenizers/recognize_file.h"
#include "megatron/tokenizers/sentencepiece/model_file.h"
#include "megatron/tokenizers/tiktoken/vocabulary_file.h"
#include "megatron/tokenizers/tokenizer_files.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr std::string_view kSpaceSymbol = "\u2581";

/// Returns the file of --tokenizer-model or --vocab-file; of a folder, the one in it.
fs::path file_of(const TokenizerConfig& config) {
  const fs::path path = config.tokenizer_model.empty() ? config.vocab_file : config.tokenizer_model;
  return fs::is_directory(path) ? tokenizer_file_in(path) : path;
}

const Json& field(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

/// Returns whether a component, or a part of it, has this type.
bool has_type(const Json& component, std::string_view type) {
  if (!component.is_structured()) return false;
  if (component.is_object() && field(component, "type") == type) return true;
  return std::ranges::any_of(component, [&](const Json& part) { return has_type(part, type); });
}

TokenSpelling spelling_of(const Json& root) {
  for (const char* stage : {"pre_tokenizer", "normalizer", "decoder"})
    if (has_type(field(root, stage), "ByteLevel")) return TokenSpelling::byte_level;
  for (const char* stage : {"pre_tokenizer", "normalizer", "decoder"})
    if (field(root, stage).dump().find(kSpaceSymbol) != std::string::npos)
      return TokenSpelling::metaspace;
  return TokenSpelling::plain;
}

void describe_json(const fs::path& path, TokenizerDescription& about) {
  const hugging_face::TokenizerJson json = hugging_face::read_tokenizer_json(path);
  const Json& root = *json.root;
  const Json& model = *JsonCursor(root, path.string())["model"];
  about.model = field(model, "type").is_string() ? field(model, "type").get<std::string>() : "BPE";
  if (json.lists) {
    about.num_merges = static_cast<std::int64_t>(json.lists->merges.size());
  } else if (field(model, "merges").is_array()) {
    about.num_merges = static_cast<std::int64_t>(field(model, "merges").size());
  }
  if (field(model, "byte_fallback") == true) about.model += " with byte fallback";
  about.normalizer = normalizer_words(field(root, "normalizer"));
  about.pre_tokenizer = pre_tokenizer_words(field(root, "pre_tokenizer"));
  about.post_processor = post_processor_words(field(root, "post_processor"));
  about.decoder = decoder_words(field(root, "decoder"));
  about.spelling = spelling_of(root);
  for (const Json& added : field(root, "added_tokens"))
    if (field(added, "special") != true)
      about.added_tokens.push_back(
          {field(added, "id").get<std::int32_t>(), field(added, "content").get<std::string>()});
}

void describe_sentencepiece(const fs::path& path, TokenizerDescription& about) {
  constexpr std::array kTypes{"Unigram", "BPE", "words", "characters"};
  const sentencepiece::ModelFile file = sentencepiece::read_model_file(path);
  about.model = kTypes[static_cast<std::size_t>(file.type) - 1];
  if (file.byte_fallback) about.model += " with byte fallback";
  if (!file.normalizer.precompiled_charsmap.empty())
    about.normalizer = "SentencePiece's character map";
  about.pre_tokenizer = std::string("spaces as ") + std::string(kSpaceSymbol) +
                        (file.normalizer.add_dummy_prefix ? ", one before the text" : "");
  about.decoder = std::string(kSpaceSymbol) + " to spaces";
  about.spelling = TokenSpelling::metaspace;
}

void describe_files(const TokenizerConfig& config, TokenizerDescription& about) {
  const std::string& type = about.type;
  if (reads_tokenizer_json(type)) return describe_json(about.file, about);
  if (type == "TikTokenizer") {
    about.model = "BPE by ranks";
    about.pre_tokenizer = pattern_words(tiktoken::read_vocabulary_file(about.file, config).pattern);
  } else if (type.find("entencePiece") != std::string::npos || type == "Llama2Tokenizer") {
    describe_sentencepiece(about.file, about);
  } else if (type == "GPT2BPETokenizer") {
    about.model = "BPE";
    about.num_merges = static_cast<std::int64_t>(merges_of(config).size());
    about.pre_tokenizer = "GPT-2's pattern, then bytes as characters";
    about.decoder = "characters to bytes";
    about.spelling = TokenSpelling::byte_level;
  } else if (type == "BertWordPieceLowerCase" || type == "BertWordPieceCase") {
    const bool lowercase = type == "BertWordPieceLowerCase";
    about.model = "WordPiece";
    about.normalizer = normalizer_words({{"type", "BertNormalizer"}, {"lowercase", lowercase}});
    about.pre_tokenizer = pre_tokenizer_words({{"type", "BertPreTokenizer"}});
    about.decoder = decoder_words({{"type", "WordPiece"}, {"prefix", "##"}});
  } else {
    about.model = type == "ByteTokenizer" ? "bytes" : "numbers";
  }
}

/// Counts the tokens, and what those of one byte or character cover.
void count_tokens(const Tokenizer& tokenizer, TokenizerDescription& about) {
  std::array<bool, 256> covered{};
  for (std::int32_t id = 0; id < about.id_limit; ++id) {
    const std::string token = tokenizer.token(id);
    if (token.empty()) continue;
    ++about.num_tokens;
    if (tokenizer.is_special(id)) {
      about.special_tokens.push_back({id, token});
      continue;
    }
    const std::string text = token_text(token, about.spelling);
    if (text.size() == 1) covered[static_cast<unsigned char>(text[0])] = true;
    if (!replace_invalid_utf8(text) && count_characters(text) == 1) ++about.single_characters;
  }
  about.covered_bytes = std::ranges::count(covered, true);
}

}  // namespace

std::string token_text(const std::string& token, TokenSpelling spelling) {
  std::string text;
  if (spelling == TokenSpelling::byte_level) {
    append_decoded_byte_level(text, token);
    return text;
  }
  if (spelling == TokenSpelling::plain) return token;
  if (const int byte = sentencepiece::byte_of_piece(token); byte >= 0)
    return std::string(1, static_cast<char>(byte));
  for (std::size_t at = 0; at < token.size();) {
    const std::size_t space = std::min(token.find(kSpaceSymbol, at), token.size());
    text.append(token, at, space - at);
    if (space < token.size()) text += ' ';
    at = space + kSpaceSymbol.size();
  }
  return text;
}

TokenizerDescription describe_tokenizer(const TokenizerConfig& config, const Tokenizer& tokenizer) {
  TokenizerDescription about{.type = std::string(tokenizer.name()),
                             .id_limit = tokenizer.vocab_size(),
                             .eod = tokenizer.eod(),
                             .bos = tokenizer.bos(),
                             .pad = tokenizer.pad(),
                             .unk = tokenizer.unk()};
  if (!config.tokenizer_model.empty() || !config.vocab_file.empty())
    about.file = file_of(config).string();
  describe_files(config, about);
  count_tokens(tokenizer, about);
  return about;
}

std::vector<std::string> merges_of(const TokenizerConfig& config) {
  std::vector<std::string> merges;
  const std::string type = tokenizer_type(config);
  if (type == "GPT2BPETokenizer") {
    std::ifstream lines(gpt2_files(config).merges);
    for (std::string line; std::getline(lines, line);)
      if (!line.empty() && !line.starts_with("#version")) merges.push_back(line);
  } else if (reads_tokenizer_json(type)) {
    const auto json = hugging_face::read_tokenizer_json(file_of(config));
    if (!json.lists) return merges;
    for (const auto& [left, right] : json.lists->merges)
      merges.push_back(std::string(left) + " " + std::string(right));
  }
  return merges;
}

}  // namespace megatron
