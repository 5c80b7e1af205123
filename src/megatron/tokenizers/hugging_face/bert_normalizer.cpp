#include "megatron/tokenizers/hugging_face/bert_normalizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/base64.h"
#include "megatron/tokenizers/hugging_face/component.h"
#include "megatron/tokenizers/sentencepiece/double_array.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

bool within(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

/// Returns whether BertNormalizer puts spaces around the character. U+2B920 begins the range of
/// extension E in the package.
bool is_chinese(char32_t c) {
  return within(c, 0x4E00, 0x9FFF) || within(c, 0x3400, 0x4DBF) || within(c, 0x20000, 0x2A6DF) ||
         within(c, 0x2A700, 0x2B73F) || within(c, 0x2B740, 0x2B81F) ||
         within(c, 0x2B920, 0x2CEAF) || within(c, 0xF900, 0xFAFF) || within(c, 0x2F800, 0x2FA1F);
}

bool is_nmt_control(char32_t c) {
  return within(c, 0x01, 0x08) || c == 0x0B || within(c, 0x0E, 0x1F) || c == 0x7F || c == 0x8F ||
         c == 0x9F;
}

bool is_nmt_space(char32_t c) {
  return c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
         within(c, 0x200B, 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
         c == 0xFFFD;
}

bool is_ascii(const std::string& text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) >= 0x80) return false;
  return true;
}

class BertNormalizer : public Normalizer {
 public:
  explicit BertNormalizer(const JsonCursor& component)
      : clean_text_(bool_or(component, "clean_text", true)),
        handle_chinese_(bool_or(component, "handle_chinese_chars", true)),
        lowercase_(bool_or(component, "lowercase", true)),
        strip_accents_(bool_or(component, "strip_accents", lowercase_)) {}

  std::string apply(std::string text) const override {
    if (is_ascii(text)) return apply_to_ascii(std::move(text));
    if (clean_text_ || handle_chinese_) text = clean(text);
    if (strip_accents_) text = strip_accents(text);
    return lowercase_ ? lowercase_unicode(text) : text;
  }

 private:
  std::string apply_to_ascii(std::string text) const {
    std::size_t size = 0;
    for (char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      const bool is_space = within(byte, 0x09, 0x0A) || byte == 0x0D;
      if (clean_text_ && !is_space && (byte < 0x20 || byte == 0x7F)) continue;
      if (clean_text_ && is_space) c = ' ';
      if (lowercase_ && c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
      text[size++] = c;
    }
    text.resize(size);
    return text;
  }

  std::string clean(const std::string& text) const {
    std::string out;
    out.reserve(text.size());
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t begin = i;
      const char32_t c = next_code_point(text, i);
      if (clean_text_ && is_bert_control(c)) continue;
      const bool is_space = clean_text_ && is_white_space(c);
      const bool is_apart = handle_chinese_ && is_chinese(c);
      if (is_apart) out += ' ';
      if (is_space) {
        out += ' ';
      } else {
        out.append(text, begin, i - begin);
      }
      if (is_apart) out += ' ';
    }
    return out;
  }

  static std::string strip_accents(const std::string& text) {
    const std::string decomposed = normalize_unicode(text, NormalizationForm::nfd);
    std::string out;
    out.reserve(decomposed.size());
    for (std::size_t i = 0; i < decomposed.size();) {
      const std::size_t begin = i;
      if (!is_nonspacing_mark(next_code_point(decomposed, i)))
        out.append(decomposed, begin, i - begin);
    }
    return out;
  }

  bool clean_text_, handle_chinese_, lowercase_, strip_accents_;
};

class Precompiled : public Normalizer {
 public:
  explicit Precompiled(sentencepiece::CharacterMap map) : map_(std::move(map)) {}

  std::string apply(std::string text) const override {
    std::string out;
    out.reserve(text.size());
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = grapheme_end(text, at);
      append(out, std::string_view(text).substr(at, end - at));
      at = end;
    }
    return out;
  }

  /// The package does not count characters that are removed at the start.
  std::size_t count_start(std::string_view text, std::size_t count) const override {
    return count == 0 ? 0 : std::max<std::size_t>(Normalizer::count_start(text, count), 1);
  }

 private:
  static constexpr std::size_t kShortCluster = 6;

  void append(std::string& out, std::string_view cluster) const {
    if (cluster.size() < kShortCluster && append_replacement(out, cluster)) return;
    for (std::size_t i = 0; i < cluster.size();) {
      const std::size_t begin = i;
      next_code_point(cluster, i);
      const std::string_view character = cluster.substr(begin, i - begin);
      if (!append_replacement(out, character)) out += character;
    }
  }
  bool append_replacement(std::string& out, std::string_view text) const {
    const auto match = map_.shortest(text);
    out += match.replacement;
    return match.length != 0;
  }

  sentencepiece::CharacterMap map_;
};

}  // namespace

std::unique_ptr<Normalizer> make_bert_normalizer(const JsonCursor& component) {
  return std::make_unique<BertNormalizer>(component);
}

std::unique_ptr<Normalizer> make_precompiled(const JsonCursor& component) {
  const JsonCursor map = component["precompiled_charsmap"];
  const std::string text = map.text();
  std::string bytes;
  if (!text.empty() && !append_base64(bytes, text))
    throw UserError({map.name() + " must be base64", "", ""});
  return std::make_unique<Precompiled>(sentencepiece::CharacterMap(bytes, map.place()));
}

std::string normalize_nmt(const std::string& text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    const char32_t c = next_code_point(text, i);
    if (is_nmt_control(c)) continue;
    if (is_nmt_space(c)) {
      out += ' ';
    } else {
      out.append(text, begin, i - begin);
    }
  }
  return out;
}

}  // namespace megatron::hugging_face
