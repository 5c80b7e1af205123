#include "megatron/tokenizers/hugging_face/normalizer.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/hugging_face/bert_normalizer.h"
#include "megatron/tokenizers/hugging_face/character_changes.h"
#include "megatron/tokenizers/hugging_face/component.h"
#include "megatron/tokenizers/hugging_face/text_growth.h"
#include "megatron/tokenizers/regex.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

/// A normalizer of two functions without state: `apply` of the interface, and `align`.
template <class Apply, class Align>
class FunctionNormalizer : public Normalizer {
 public:
  FunctionNormalizer(Apply apply, Align align)
      : apply_(std::move(apply)), align_(std::move(align)) {}
  std::string apply(std::string text) const override { return apply_(std::move(text)); }
  void align(AlignedText& text) const override { align_(text); }

 private:
  Apply apply_;
  Align align_;
};

template <class Apply, class Align>
std::unique_ptr<Normalizer> make_normalizer_from(Apply apply, Align align) {
  return std::make_unique<FunctionNormalizer<Apply, Align>>(std::move(apply), std::move(align));
}

std::unique_ptr<Normalizer> unicode_form(NormalizationForm form) {
  return make_normalizer_from(
      [form](const std::string& text) { return normalize_unicode(text, form); },
      [form](AlignedText& text) { text.rewrite(normalization_changes(text.text, form)); });
}

std::unique_ptr<Normalizer> lowercase() {
  return make_normalizer_from(
      [](const std::string& text) { return lowercase_unicode(text); },
      [](AlignedText& text) { text.rewrite(lowercase_changes(text.text)); });
}

std::unique_ptr<Normalizer> strip_accents() {
  const auto keeps = [](char32_t c) { return !is_combining_mark(c); };
  return make_normalizer_from(
      [keeps](const std::string& text) {
        std::string out;
        for (std::size_t i = 0; i < text.size();) {
          const std::size_t begin = i;
          if (keeps(next_code_point(text, i))) out.append(text, begin, i - begin);
        }
        return out;
      },
      [keeps](AlignedText& text) { text.keep_characters(keeps); });
}

/// Returns the text without white space at the ends.
Span stripped(std::string_view text, bool left, bool right) {
  std::size_t begin = 0, end = text.size();
  for (std::size_t next = begin; left && begin < end; begin = next)
    if (!is_white_space(next_code_point(text, next))) break;
  for (std::size_t previous = end; right && end > begin; end = previous)
    if (!is_white_space(previous_code_point(text, previous))) break;
  return {begin, end};
}

std::unique_ptr<Normalizer> strip(bool left, bool right) {
  return make_normalizer_from(
      [left, right](const std::string& text) {
        const auto [begin, end] = stripped(text, left, right);
        return text.substr(begin, end - begin);
      },
      [left, right](AlignedText& text) {
        const auto [begin, end] = stripped(text.text, left, right);
        text.cut(begin, end);
      });
}

std::unique_ptr<Normalizer> prepend(const std::string& prefix) {
  return make_normalizer_from(
      [prefix](const std::string& text) { return text.empty() ? text : prefix + text; },
      [prefix](AlignedText& text) { text.prepend(prefix); });
}

/// Writes every byte as a character of the byte alphabet.
std::unique_ptr<Normalizer> byte_level() {
  return make_normalizer_from(
      [](const std::string& text) {
        std::string out;
        append_byte_level(out, text);
        return out;
      },
      [](AlignedText& text) { text.rewrite(byte_level_changes(text.text)); });
}

class Replace : public Normalizer {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string apply(std::string text) const override {
    std::string out;
    std::size_t copied = 0;
    const std::vector<Span> found = matches(text);
    check_growth(text.size(), found.size() * content_.size());
    for (const Span& match : found) {
      out.append(text, copied, match.begin - copied).append(content_);
      copied = match.end;
    }
    return out.append(text, copied);
  }
  void align(AlignedText& text) const override {
    const std::vector<Span> found = matches(text.text);
    check_growth(text.text.size(), found.size() * content_.size());
    text.replace(found, content_);
  }

 private:
  std::vector<Span> matches(std::string_view text) const {
    std::string storage;
    std::vector<Span> found;
    Regex::Finder(pattern_).find_all(replace_unassigned_characters(text, storage), 0, found);
    return found;
  }

  Regex pattern_;
  std::string content_;
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  std::string apply(std::string text) const override {
    const std::size_t original = text.size();
    for (const auto& part : parts_) {
      text = part->apply(std::move(text));
      check_growth(original, text.size());
    }
    return text;
  }
  void align(AlignedText& text) const override {
    const std::size_t original = text.text.size();
    for (const auto& part : parts_) {
      part->align(text);
      check_growth(original, text.text.size());
    }
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

std::unique_ptr<Normalizer> make_sequence(const JsonCursor& component) {
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const JsonCursor& part : component["normalizers"].elements())
    if (auto made = make_normalizer(part)) parts.push_back(std::move(made));
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const JsonCursor& component) {
  if (component->is_null()) return nullptr;
  const std::string type = component_type(component);
  if (type == "NFC") return unicode_form(NormalizationForm::nfc);
  if (type == "NFD") return unicode_form(NormalizationForm::nfd);
  if (type == "NFKC") return unicode_form(NormalizationForm::nfkc);
  if (type == "NFKD") return unicode_form(NormalizationForm::nfkd);
  if (type == "Lowercase") return lowercase();
  if (type == "StripAccents") return strip_accents();
  if (type == "Sequence") return make_sequence(component);
  if (type == "Replace")
    return std::make_unique<Replace>(Regex(pattern_of(component), component["pattern"].place()),
                                     component["content"].text());
  if (type == "Strip")
    return strip(component["strip_left"].boolean(), component["strip_right"].boolean());
  if (type == "Prepend") return prepend(component["prepend"].text());
  if (type == "BertNormalizer") return make_bert_normalizer(component);
  if (type == "Precompiled") return make_precompiled(component);
  if (type == "Nmt") return make_normalizer_from(normalize_nmt, align_nmt);
  if (type == "ByteLevel") return byte_level();
  unsupported_component(type, component.place());
}

}  // namespace megatron::hugging_face
