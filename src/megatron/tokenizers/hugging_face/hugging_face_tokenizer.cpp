#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/tokenizers/hugging_face/bpe_model.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

namespace fs = std::filesystem;

/// Returns a field, or null when it is missing.
const Json& optional_at(const Json& object, const char* key) {
  static const Json null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? path / "tokenizer.json" : path;
  const std::string source = file.string();
  const Json root = read_json(file);
  const Json& model = json_at(root, "model", source);
  normalizer_ =
      hugging_face::make_normalizer(optional_at(root, "normalizer"), source + ": normalizer");
  pre_tokenizer_ = hugging_face::make_pre_tokenizer(optional_at(root, "pre_tokenizer"),
                                                    source + ": pre_tokenizer");
  bpe_.emplace(hugging_face::make_bpe(model, source + ": model"));
  const Json& added = optional_at(root, "added_tokens");
  if (!added.is_null())
    added_tokens_ = hugging_face::AddedTokens(added, bpe_->vocabulary(), normalizer_.get(),
                                              source + ": added_tokens");
  id_limit_ = std::max(bpe_->vocabulary().id_limit(), added_tokens_.id_limit());
  post_processor_ = hugging_face::PostProcessor(optional_at(root, "post_processor"), id_limit_,
                                                source + ": post_processor");
  decoder_ = hugging_face::make_decoder(optional_at(root, "decoder"), source + ": decoder");
  special_ =
      hugging_face::read_special_tokens(file.parent_path(), [this](const std::string& token) {
        const std::int32_t id = added_tokens_.find(token);
        return id >= 0 ? id : bpe_->vocabulary().find(token);
      });
}

std::vector<std::int32_t> HuggingFaceTokenizer::encode(std::string_view text) const {
  const auto replaced = replace_invalid_utf8(text);
  if (replaced) text = *replaced;
  std::vector<std::int32_t> ids;
  for (const auto& [span, id] : added_tokens_.split_raw(text)) {
    if (id >= 0) {
      ids.push_back(id);
    } else {
      encode_plain(text.substr(span.begin, span.end - span.begin), span.begin == 0, ids);
    }
  }
  return post_processor_.apply(std::move(ids));
}

void HuggingFaceTokenizer::encode_plain(std::string_view text, bool starts_document,
                                        std::vector<std::int32_t>& ids) const {
  std::string normalized;
  if (normalizer_) {
    normalized = normalizer_->apply(std::string(text));
    text = normalized;
  }
  for (const auto& [span, id] : added_tokens_.split_normalized(text)) {
    if (id >= 0) {
      ids.push_back(id);
    } else {
      encode_words(text.substr(span.begin, span.end - span.begin),
                   starts_document && span.begin == 0, ids);
    }
  }
}

void HuggingFaceTokenizer::encode_words(std::string_view text, bool starts_document,
                                        std::vector<std::int32_t>& ids) const {
  if (!pre_tokenizer_) return bpe_->encode(text, ids);
  hugging_face::PreTokenizedString words{std::string(text), {{0, text.size()}}, starts_document};
  pre_tokenizer_->apply(words);
  for (const Span& span : words.spans)
    bpe_->encode(std::string_view(words.text).substr(span.begin, span.end - span.begin), ids);
}

std::string HuggingFaceTokenizer::decode(std::span<const std::int32_t> ids,
                                         SpecialTokens special) const {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    if (special == SpecialTokens::skip && is_special(id)) continue;
    if (const std::string* added = added_tokens_.decoded(id)) {
      tokens.push_back(*added);
    } else if (bpe_->vocabulary().contains(id)) {
      tokens.emplace_back(bpe_->vocabulary().token(id));
    }
  }
  if (decoder_) tokens = decoder_->apply(std::move(tokens));
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    text += (i > 0 && !decoder_ ? " " : "") + tokens[i];
  return text;
}

}  // namespace megatron
