#include "megatron/tokenizers/tiktoken/tiktoken_tokenizer.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/tokenizers/utf8.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron {

TiktokenTokenizer::TiktokenTokenizer(const TokenizerConfig& config)
    : TiktokenTokenizer(
          tiktoken::read_vocabulary_file(config.tokenizer_model, config),
          config.tiktoken_pattern.empty() ? config.tokenizer_model : "--tiktoken-pattern") {}

TiktokenTokenizer::TiktokenTokenizer(tiktoken::VocabularyFile file, const std::string& source)
    : ranks_(std::move(file.ranks)),
      splitter_(file.pattern, RegexDialect::rust, source),
      decodes_between_special_tokens_(file.decodes_between_special_tokens),
      id_limit_(ranks_.id_limit()),
      cache_owner_(WordCache::new_owner()) {
  for (const auto& [text, id] : file.special_tokens) {
    if (file.encodes_special_tokens && !encoded_special_tokens_.add(text, id))
      throw UserError({source + ": special token \"" + text + "\" is given twice", "", ""});
    special_tokens_.emplace(id, text);
    id_limit_ = std::max(id_limit_, id + 1);
  }
  eod_ = id_of(file.eod);
  bos_ = id_of(file.bos);
  pad_ = id_of(file.pad);
}

std::int32_t TiktokenTokenizer::id_of(std::string_view special_token) const {
  for (const auto& [id, text] : special_tokens_)
    if (text == special_token) return id;
  return -1;
}

std::int32_t TiktokenTokenizer::find(std::string_view token) const {
  const std::int32_t id = id_of(token);
  return id >= 0 ? id : ranks_.find(token);
}

std::string TiktokenTokenizer::token(std::int32_t id) const {
  const auto special = special_tokens_.find(id);
  return special != special_tokens_.end() ? special->second : std::string(ranks_.token(id));
}

/// Returns the first special token of the text at or after `at`; its id is −1 at the end.
hugging_face::TokenTrie::Match TiktokenTokenizer::next_special_token(std::string_view text,
                                                                     std::size_t at) const {
  if (encoded_special_tokens_.empty()) return {{text.size(), text.size()}, -1};
  return encoded_special_tokens_.find(text, at);
}

std::vector<std::int32_t> TiktokenTokenizer::encode(std::string_view text) const {
  const auto replaced = replace_invalid_utf8(text);
  if (replaced) text = *replaced;
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 3);
  for (std::size_t at = 0; at < text.size();) {
    const auto [span, id] = next_special_token(text, at);
    encode_ordinary(text.substr(at, span.begin - at), ids);
    if (id >= 0) ids.push_back(id);
    at = span.end;
  }
  return ids;
}

void TiktokenTokenizer::encode_ordinary(std::string_view text,
                                        std::vector<std::int32_t>& ids) const {
  WordCache& cache = WordCache::of_thread(cache_owner_);
  splitter_.split(text, [&](std::span<const Span> words) {
    for (const Span& span : words)
      cache.encode(text, span, ids, [&](std::string_view word) { encode_word(cache, word, ids); });
  });
}

void TiktokenTokenizer::encode_word(WordCache& cache, std::string_view word,
                                    std::vector<std::int32_t>& ids) const {
  const auto each_token = [this](const auto& add) {
    for (std::int32_t id = 0; id < ranks_.id_limit(); ++id) add(ranks_.token(id));
  };
  const auto merge = [&](std::string_view part) { ranks_.merge(part, ids); };
  if (!word.empty() && !parts_.encode(word, each_token, cache, ids, merge))
    ranks_.encode(word, ids);
}

std::string TiktokenTokenizer::decode(std::span<const std::int32_t> ids,
                                      SpecialTokens special) const {
  std::string text, bytes;
  const auto flush = [&] {
    const auto replaced = replace_invalid_utf8(bytes);
    text += replaced ? *replaced : bytes;
    bytes.clear();
  };
  for (const std::int32_t id : ids) {
    const auto found = special_tokens_.find(id);
    if (found == special_tokens_.end()) {
      bytes += ranks_.token(id);
      continue;
    }
    if (decodes_between_special_tokens_) flush();
    if (special == SpecialTokens::keep) bytes += found->second;
  }
  flush();
  return text;
}

}  // namespace megatron
