#include "megatron/tokenizers/gpt2_bpe_tokenizer.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/patterns.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";

/// Reads the lines "left right" after the "#version" header.
Bpe::Merges read_merges(const fs::path& path) {
  const std::string content = read_file(path);
  Bpe::Merges merges;
  std::size_t number = 0;
  for (std::size_t at = 0; at < content.size();) {
    const std::size_t end = std::min(content.find('\n', at), content.size());
    std::string_view line = std::string_view(content).substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos)
      throw UserError({path.string() + ": line " + std::to_string(number) +
                           " must be two tokens separated by one space",
                       "\"" + std::string(line.substr(0, 80)) + "\"",
                       "check that the file is GPT-2's merges.txt and whole"});
    merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
  if (merges.empty())
    throw UserError({path.string() + " has no merges", "",
                     "check that the file is GPT-2's merges.txt and whole"});
  return merges;
}

Vocabulary read_vocabulary(const fs::path& path) {
  const Json json = read_json(path);
  if (json.is_object() && json.contains("model") && json.at("model").is_object())
    throw UserError({path.string() + " is a tokenizer.json, not a vocab.json of GPT-2's kind", "",
                     "give it with --tokenizer-model alone"});
  return Vocabulary(json, path.string());
}

}  // namespace

Gpt2BpeTokenizer::Gpt2BpeTokenizer(const fs::path& vocab_file, const fs::path& merge_file)
    : bpe_(read_vocabulary(vocab_file), read_merges(merge_file), {}, merge_file.string()),
      splitter_(std::string(patterns::kGpt2), RegexDialect::oniguruma, "GPT-2's pattern"),
      eod_(bpe_.vocabulary().find(kEndOfText)) {
  if (eod_ < 0)
    throw UserError({vocab_file.string() + ": token \"" + std::string(kEndOfText) + "\" is missing",
                     "", "it marks the end of a document"});
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    append_byte_level(character, std::string(1, static_cast<char>(byte)));
    if (bpe_.vocabulary().find(character) < 0)
      throw UserError({vocab_file.string() + ": token \"" + character + "\" (byte " +
                           std::to_string(byte) + ") is missing",
                       "", "GPT-2's vocabulary has a token for every byte"});
  }
}

std::vector<std::int32_t> Gpt2BpeTokenizer::encode(std::string_view text) const {
  const auto replaced = replace_invalid_utf8(text);
  if (replaced) text = *replaced;
  std::vector<std::int32_t> ids;
  std::size_t begin = 0;
  for (std::size_t mark = 0; (mark = text.find(kEndOfText, begin)) != std::string_view::npos;
       begin = mark + kEndOfText.size()) {
    encode_ordinary(text.substr(begin, mark - begin), ids);
    ids.push_back(eod_);
  }
  encode_ordinary(text.substr(begin), ids);
  return ids;
}

void Gpt2BpeTokenizer::encode_ordinary(std::string_view text,
                                       std::vector<std::int32_t>& ids) const {
  WordCache& cache = WordCache::of_thread(cache_owner_);
  std::string characters;
  splitter_.split(text, [&](std::span<const Span> words) {
    for (const Span& span : words)
      cache.encode(text, span, ids, [&](std::string_view word) {
        characters.clear();
        append_byte_level(characters, word);
        bpe_.encode(characters, ids);
      });
  });
}

std::string Gpt2BpeTokenizer::token_bytes(std::int32_t id) const {
  std::string bytes;
  append_decoded_byte_level(bytes, token(id));
  return bytes;
}

std::string Gpt2BpeTokenizer::decode(std::span<const std::int32_t> ids,
                                     SpecialTokens special) const {
  std::string bytes;
  for (const std::int32_t id : ids)
    if (special == SpecialTokens::keep || id != eod_)
      append_decoded_byte_level(bytes, bpe_.vocabulary().token(id));
  auto replaced = replace_invalid_utf8(bytes);
  return replaced ? std::move(*replaced) : bytes;
}

}  // namespace megatron
