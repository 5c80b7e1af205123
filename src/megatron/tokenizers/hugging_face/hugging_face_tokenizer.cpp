#include "megatron/tokenizers/hugging_face/hugging_face_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

namespace fs = std::filesystem;

/// Returns a field, or a null in its place when it is missing.
JsonCursor optional_at(const JsonCursor& object, const char* key) {
  static const Json null;
  const auto found = object.find(key);
  return found ? *found : JsonCursor(null, object.place() + ": " + key);
}

fs::path json_file(const fs::path& path) {
  return fs::is_directory(path) ? path / "tokenizer.json" : path;
}

}  // namespace

HuggingFaceTokenizer::HuggingFaceTokenizer(const fs::path& path,
                                           const std::vector<std::string>& special_tokens)
    : HuggingFaceTokenizer(hugging_face::read_tokenizer_json(json_file(path)),
                           fs::absolute(json_file(path)).parent_path(), json_file(path).string()) {
  for (const std::string& token : special_tokens)
    added_tokens_.add_special(token, model_->vocabulary());
  id_limit_ = std::max(id_limit_, added_tokens_.id_limit());
}

HuggingFaceTokenizer::HuggingFaceTokenizer(hugging_face::TokenizerJson&& json,
                                           const fs::path& folder, const std::string& source) {
  const JsonCursor root(*json.root, source), model = root["model"];
  normalizer_ = hugging_face::make_normalizer(optional_at(root, "normalizer"));
  pre_tokenizer_ = hugging_face::make_pre_tokenizer(optional_at(root, "pre_tokenizer"));
  if (pre_tokenizer_) byte_level_words_ = pre_tokenizer_->byte_level_words();
  model_ = hugging_face::make_model(model, json.lists ? &*json.lists : nullptr);
  has_independent_parts_ = byte_level_words_ != nullptr && model_->has_independent_parts();
  if (const auto unk = model.find("unk_token"); unk && (*unk)->is_string())
    unk_ = model_->vocabulary().find(unk->text());
  if (const auto unk = model.find("unk_id"); unk && (*unk)->is_number_integer())
    unk_ = (*unk)->get<std::int32_t>();
  const JsonCursor added = optional_at(root, "added_tokens");
  if (!added->is_null())
    added_tokens_ = hugging_face::AddedTokens(added, model_->vocabulary(), normalizer_.get());
  id_limit_ = std::max(model_->vocabulary().id_limit(), added_tokens_.id_limit());
  post_processor_ = hugging_face::PostProcessor(optional_at(root, "post_processor"), id_limit_);
  decoder_ = hugging_face::make_decoder(optional_at(root, "decoder"));
  if (decoder_) {
    std::string bytes;
    for (const std::string& part : decoder_({"<0x41>", "<0x42>"})) bytes += part;
    decodes_bytes_together_ = bytes == "AB";
    // The two halves of U+00E9.
    decodes_byte_level_ = decoder_({"\u00c3", "\u00a9"}) == std::vector<std::string>{"\u00e9"};
  }
  if (folder.empty()) return;
  special_ = hugging_face::read_special_tokens(
      folder, [this](const std::string& token) { return find(token); });
}

void HuggingFaceTokenizer::begin_with_bos(const std::string& what) {
  if (special_.bos < 0)
    throw UserError({what + " begins texts with the bos_token", "the tokenizer has none",
                     "name one in its tokenizer_config.json"});
  const std::string name = token(special_.bos);
  const Json component = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", name}}}}, {{"Sequence", {{"id", "A"}}}}}},
      {"special_tokens", {{name, {{"ids", {special_.bos}}}}}}};
  post_processor_ = hugging_face::PostProcessor(JsonCursor(component, "post_processor"), id_limit_);
}

std::int32_t HuggingFaceTokenizer::find(std::string_view token) const {
  const std::int32_t id = added_tokens_.find(std::string(token));
  return id >= 0 ? id : model_->vocabulary().find(token);
}

std::string HuggingFaceTokenizer::token(std::int32_t id) const {
  if (const std::string* added = added_tokens_.decoded(id)) return *added;
  return std::string(model_->vocabulary().token(id));
}

std::string HuggingFaceTokenizer::token_bytes(std::int32_t id) const {
  std::string own = token(id);
  if (added_tokens_.decoded(id) != nullptr || own.empty()) return own;
  if (awaits_more(id) && own.find_first_not_of("0123456789abcdefABCDEF", 3) == 5)
    return {static_cast<char>(std::stoi(own.substr(3, 2), nullptr, 16))};
  if (decodes_byte_level_) {
    std::string bytes;
    append_decoded_byte_level(bytes, own);
    return bytes;
  }
  if (!decoder_) return " " + own;
  const auto text_of = [this](std::vector<std::string> tokens) {
    std::string text;
    for (const std::string& part : decoder_(std::move(tokens))) text += part;
    return text;
  };
  const std::string before = text_of({"a"}), both = text_of({"a", own});
  return both.starts_with(before) ? both.substr(before.size()) : "";
}

std::vector<std::int32_t> HuggingFaceTokenizer::encode(std::string_view text) const {
  return post_processor_.apply(encode_fragment(text));
}

std::vector<std::int32_t> HuggingFaceTokenizer::encode_fragment(std::string_view text) const {
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
  return ids;
}

/// Returns how many characters at the start of the normalized text come from the first character of
/// the text. Normalizes as little of it as is needed.
std::size_t HuggingFaceTokenizer::count_start(std::string_view text) const {
  constexpr std::size_t kFirstSize = 256, kEnough = 64;
  for (std::size_t size = kFirstSize;; size *= 4) {
    const std::string_view part = utf8_prefix(text, size);
    if (part.size() == text.size() || normalizer_->apply(std::string(part)).size() >= kEnough)
      return normalizer_->count_start(part, 1);
  }
}

void HuggingFaceTokenizer::encode_plain(std::string_view text, bool starts_document,
                                        std::vector<std::int32_t>& ids) const {
  std::string normalized;
  std::size_t count = starts_document ? 1 : 0;
  if (normalizer_) {
    if (starts_document && pre_tokenizer_ && pre_tokenizer_->reads_start())
      count = count_start(text);
    normalized = normalizer_->apply(std::string(text));
    text = normalized;
  }
  const std::size_t start = first_characters(text, count).size();
  for (const auto& [span, id] : added_tokens_.split_normalized(text)) {
    if (id >= 0) {
      ids.push_back(id);
    } else {
      encode_words(text.substr(span.begin, span.end - span.begin),
                   std::min(start, span.end) - std::min(start, span.begin), ids);
    }
  }
}

void HuggingFaceTokenizer::encode_words(std::string_view text, std::size_t start,
                                        std::vector<std::int32_t>& ids) const {
  if (!pre_tokenizer_) return model_->encode(text, ids);
  if (byte_level_words_ != nullptr) return encode_byte_level(text, ids);
  hugging_face::PreTokenizedString words{std::string(text), {{0, text.size()}}, start};
  pre_tokenizer_->apply(words);
  WordCache& cache = WordCache::of_thread(cache_owner_);
  for (const Span& span : words.spans)
    cache.encode(words.text, span, ids, [&](std::string_view word) { model_->encode(word, ids); });
}

void HuggingFaceTokenizer::encode_byte_level(std::string_view text,
                                             std::vector<std::int32_t>& ids) const {
  WordCache& cache = WordCache::of_thread(cache_owner_);
  std::string word;
  const auto each_token = [this](const auto& add) {
    const Vocabulary& vocabulary = model_->vocabulary();
    std::string token;
    for (std::int32_t id = 0; id < vocabulary.id_limit(); ++id) {
      token.clear();
      append_decoded_byte_level(token, vocabulary.token(id));
      add(token);
    }
  };
  const auto as_characters = [&](std::string_view bytes) -> const std::string& {
    word.clear();
    append_byte_level(word, bytes);
    return word;
  };
  const auto merge = [&](std::string_view part) { model_->merge_part(as_characters(part), ids); };
  const auto encode_word = [&](std::string_view bytes) {
    if (!has_independent_parts_ || !parts_.encode(bytes, each_token, cache, ids, merge))
      model_->encode(as_characters(bytes), ids);
  };
  byte_level_words_->split(text, [&](std::span<const Span> words) {
    for (const Span& span : words) cache.encode(text, span, ids, encode_word);
  });
}

bool HuggingFaceTokenizer::awaits_more(std::int32_t id) const {
  if (!decodes_bytes_together_ || !model_->vocabulary().contains(id)) return false;
  const std::string_view token = model_->vocabulary().token(id);
  return token.size() == 6 && token.starts_with("<0x") && token.ends_with('>');
}

std::string HuggingFaceTokenizer::decode(std::span<const std::int32_t> ids,
                                         SpecialTokens special) const {
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) {
    if (special == SpecialTokens::skip && is_special(id)) continue;
    if (const std::string* added = added_tokens_.decoded(id)) {
      tokens.push_back(*added);
    } else if (model_->vocabulary().contains(id)) {
      tokens.emplace_back(model_->vocabulary().token(id));
    }
  }
  if (decoder_) tokens = decoder_(std::move(tokens));
  std::string text;
  for (std::size_t i = 0; i < tokens.size(); ++i)
    text += (i > 0 && !decoder_ ? " " : "") + tokens[i];
  return text;
}

}  // namespace megatron
