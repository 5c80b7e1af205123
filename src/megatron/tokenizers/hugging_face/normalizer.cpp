#include "megatron/tokenizers/hugging_face/normalizer.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "megatron/tokenizers/byte_level.h"
#include "megatron/tokenizers/hugging_face/bert_normalizer.h"
#include "megatron/tokenizers/hugging_face/component.h"
#include "megatron/tokenizers/regex.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

/// A normalizer that applies one function without state.
template <class Function>
class FunctionNormalizer : public Normalizer {
 public:
  explicit FunctionNormalizer(Function function) : function_(std::move(function)) {}
  std::string apply(std::string text) const override { return function_(std::move(text)); }

 private:
  Function function_;
};

template <class Function>
std::unique_ptr<Normalizer> make_normalizer_from(Function function) {
  return std::make_unique<FunctionNormalizer<Function>>(std::move(function));
}

std::unique_ptr<Normalizer> unicode_form(NormalizationForm form) {
  return make_normalizer_from(
      [form](const std::string& text) { return normalize_unicode(text, form); });
}

std::string strip_accents(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t begin = i;
    if (!is_combining_mark(next_code_point(text, i))) out.append(text, begin, i - begin);
  }
  return out;
}

std::string strip(const std::string& text, bool left, bool right) {
  std::size_t begin = 0, end = text.size();
  for (std::size_t next = begin; left && begin < end; begin = next)
    if (!is_white_space(next_code_point(text, next))) break;
  for (std::size_t previous = end; right && end > begin; end = previous)
    if (!is_white_space(previous_code_point(text, previous))) break;
  return text.substr(begin, end - begin);
}

class Replace : public Normalizer {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  std::string apply(std::string text) const override {
    std::string storage;
    std::vector<Span> matches;
    Regex::Finder(pattern_).find_all(replace_unassigned_characters(text, storage), 0, matches);
    std::string out;
    std::size_t copied = 0;
    for (const Span& match : matches) {
      out.append(text, copied, match.begin - copied).append(content_);
      copied = match.end;
    }
    return out.append(text, copied);
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Sequence : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> parts) : parts_(std::move(parts)) {}
  std::string apply(std::string text) const override {
    for (const auto& part : parts_) text = part->apply(std::move(text));
    return text;
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

std::unique_ptr<Normalizer> make_sequence(const Json& component, const std::string& where) {
  std::vector<std::unique_ptr<Normalizer>> parts;
  for (const Json& part : array_at(component, "normalizers", where))
    if (auto made =
            make_normalizer(part, where + ".normalizers[" + std::to_string(parts.size()) + "]"))
      parts.push_back(std::move(made));
  return std::make_unique<Sequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Json& component, const std::string& where) {
  if (component.is_null()) return nullptr;
  const std::string type = component_type(component, where);
  if (type == "NFC") return unicode_form(NormalizationForm::nfc);
  if (type == "NFD") return unicode_form(NormalizationForm::nfd);
  if (type == "NFKC") return unicode_form(NormalizationForm::nfkc);
  if (type == "NFKD") return unicode_form(NormalizationForm::nfkd);
  if (type == "Lowercase")
    return make_normalizer_from([](const std::string& text) { return lowercase_unicode(text); });
  if (type == "StripAccents")
    return make_normalizer_from([](const std::string& text) { return strip_accents(text); });
  if (type == "Sequence") return make_sequence(component, where);
  if (type == "Replace")
    return std::make_unique<Replace>(Regex(pattern_of(component, where), where + ".pattern"),
                                     json_string(component, "content", where));
  if (type == "Strip") {
    const bool left = json_bool(component, "strip_left", where),
               right = json_bool(component, "strip_right", where);
    return make_normalizer_from(
        [left, right](const std::string& text) { return strip(text, left, right); });
  }
  if (type == "Prepend")
    return make_normalizer_from(
        [prefix = json_string(component, "prepend", where)](const std::string& text) {
          return text.empty() ? text : prefix + text;
        });
  if (type == "BertNormalizer") return make_bert_normalizer(component, where);
  if (type == "Precompiled") return make_precompiled(component, where);
  if (type == "Nmt") return make_normalizer_from(normalize_nmt);
  if (type == "ByteLevel") {
    return make_normalizer_from([](const std::string& text) {
      std::string out;
      append_byte_level(out, text);
      return out;
    });
  }
  unsupported_component(type, where);
}

}  // namespace megatron::hugging_face
