#include "megatron/tokenizers/hugging_face/normalizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/hugging_face/bert_normalizer.h"
#include "megatron/tokenizers/hugging_face/component.h"
#include "megatron/tokenizers/hugging_face/text_growth.h"
#include "megatron/tokenizers/regex.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

/// A normalizer of a function without state.
template <class Apply>
class FunctionNormalizer : public Normalizer {
 public:
  explicit FunctionNormalizer(Apply apply) : apply_(std::move(apply)) {}
  std::string apply(std::string text) const override { return apply_(std::move(text)); }

 private:
  Apply apply_;
};

template <class Apply>
std::unique_ptr<Normalizer> make_normalizer_from(Apply apply) {
  return std::make_unique<FunctionNormalizer<Apply>>(std::move(apply));
}

std::unique_ptr<Normalizer> unicode_form(NormalizationForm form) {
  return make_normalizer_from(
      [form](const std::string& text) { return normalize_unicode(text, form); });
}

std::unique_ptr<Normalizer> strip_accents() {
  return make_normalizer_from([](const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
      const std::size_t begin = i;
      if (!is_combining_mark(next_code_point(text, i))) out.append(text, begin, i - begin);
    }
    return out;
  });
}

/// Removes white space at the ends.
class Strip : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string text) const override {
    const std::size_t begin = left_ ? end_of_leading_space(text) : 0;
    const std::size_t end = right_ ? start_of_trailing_space(text) : text.size();
    return text.substr(begin, std::max(begin, end) - begin);
  }
  std::size_t count_start(std::string_view text, std::size_t count) const override {
    const std::string_view start = first_characters(text, count);
    return count_characters(left_ ? start.substr(end_of_leading_space(start)) : start);
  }

 private:
  bool left_, right_;
};

std::unique_ptr<Normalizer> prepend(const std::string& prefix) {
  return make_normalizer_from(
      [prefix](const std::string& text) { return text.empty() ? text : prefix + text; });
}

/// Writes every byte as a character of the byte alphabet.
std::unique_ptr<Normalizer> byte_level() {
  return make_normalizer_from([](const std::string& text) {
    std::string out;
    append_byte_level(out, text);
    return out;
  });
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
  /// The content has the place of the last character of its match.
  std::size_t count_start(std::string_view text, std::size_t count) const override {
    const std::string_view start = first_characters(text, count);
    std::size_t counted = 0, copied = 0;
    for (const Span& match : matches(text)) {
      if (match.end > start.size()) {
        const std::size_t end = std::min(match.begin, start.size());
        return counted + count_characters(start.substr(copied, end - copied));
      }
      counted += count_characters(start.substr(copied, match.begin - copied));
      counted += count_characters(content_);
      copied = match.end;
    }
    return counted + count_characters(start.substr(copied));
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
  std::size_t count_start(std::string_view text, std::size_t count) const override {
    std::string rewritten(text);
    for (const auto& part : parts_) {
      count = part->count_start(rewritten, count);
      rewritten = part->apply(std::move(rewritten));
      check_growth(text.size(), rewritten.size());
    }
    return count;
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

std::size_t Normalizer::count_start(std::string_view text, std::size_t count) const {
  return count_characters(apply(std::string(first_characters(text, count))));
}

std::unique_ptr<Normalizer> make_normalizer(const JsonCursor& component) {
  if (component->is_null()) return nullptr;
  const std::string type = component_type(component);
  if (type == "NFC") return unicode_form(NormalizationForm::nfc);
  if (type == "NFD") return unicode_form(NormalizationForm::nfd);
  if (type == "NFKC") return unicode_form(NormalizationForm::nfkc);
  if (type == "NFKD") return unicode_form(NormalizationForm::nfkd);
  if (type == "Lowercase") return make_normalizer_from(lowercase_unicode);
  if (type == "StripAccents") return strip_accents();
  if (type == "Sequence") return make_sequence(component);
  if (type == "Replace")
    return std::make_unique<Replace>(Regex(pattern_of(component), component["pattern"].place()),
                                     component["content"].text());
  if (type == "Strip")
    return std::make_unique<Strip>(component["strip_left"].boolean(),
                                   component["strip_right"].boolean());
  if (type == "Prepend") return prepend(component["prepend"].text());
  if (type == "BertNormalizer") return make_bert_normalizer(component);
  if (type == "Precompiled") return make_precompiled(component);
  if (type == "Nmt") return make_normalizer_from(normalize_nmt);
  if (type == "ByteLevel") return byte_level();
  unsupported_component(type, component.place());
}

}  // namespace megatron::hugging_face
