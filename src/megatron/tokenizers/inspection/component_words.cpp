#include "megatron/tokenizers/inspection/component_words.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "megatron/tokenizers/patterns.h"

namespace megatron {
namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kPatternNames{{
    {patterns::kGpt2, "GPT-2's pattern"},
    {patterns::kR50kBase, "GPT-2's pattern"},
    {patterns::kCl100kBase, "cl100k_base's pattern"},
    {patterns::kCl100kInJson, "cl100k_base's pattern"},
    {patterns::kLlama3, "Llama 3's pattern"},
    {patterns::kQwen, "Qwen's pattern"},
    {patterns::kO200kBase, "o200k_base's pattern"},
    {patterns::kTekken, "Tekken's pattern"},
    {patterns::kMegatronV1, "pattern v1 of Megatron"},
}};

bool flag(const Json& component, const char* key, bool otherwise) {
  const auto found = component.find(key);
  return found != component.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

std::string text(const Json& component, const char* key) {
  const auto found = component.find(key);
  return found != component.end() && found->is_string() ? found->get<std::string>() : "";
}

std::string type_of(const Json& component) {
  return component.is_object() ? text(component, "type") : "";
}

/// Returns the words of every part, or "none" for null.
std::string sequence_words(const Json& component, const char* list,
                           std::string (*words)(const Json&)) {
  if (!component.is_object()) return "none";
  if (type_of(component) != "Sequence") return words(component);
  std::string all;
  for (const Json& part : component.value(list, Json::array()))
    all += (all.empty() ? "" : ", then ") + words(part);
  return all.empty() ? "none" : all;
}

std::string pattern_of(const Json& component) {
  const auto pattern = component.find("pattern");
  if (pattern == component.end() || !pattern->is_object()) return "?";
  if (const std::string regex = text(*pattern, "Regex"); !regex.empty())
    return pattern_words(regex);
  return "\"" + text(*pattern, "String") + "\"";
}

std::string normalizer_part(const Json& part) {
  std::string type = type_of(part);
  if (type == "Lowercase") return "lower case";
  if (type == "StripAccents") return "accents removed";
  if (type == "Strip") return "white space removed at the ends";
  if (type == "Prepend") return "\"" + text(part, "prepend") + "\" before the text";
  if (type == "Replace") return pattern_of(part) + " replaced by \"" + text(part, "content") + "\"";
  if (type == "Precompiled") return "SentencePiece's character map";
  if (type == "Nmt") return "SentencePiece's white space and controls";
  if (type == "ByteLevel") return "bytes as characters";
  if (type != "BertNormalizer") return type;
  std::string words = "BERT's:";
  if (flag(part, "clean_text", true)) words += " controls removed,";
  if (flag(part, "handle_chinese_chars", true)) words += " spaces around Chinese characters,";
  const bool lowercase = flag(part, "lowercase", true);
  if (flag(part, "strip_accents", lowercase)) words += " accents removed,";
  if (lowercase) words += " lower case,";
  words.pop_back();
  return words;
}

std::string metaspace_words(const Json& part) {
  const std::string scheme =
      part.contains("prepend_scheme") ? text(part, "prepend_scheme") : "always";
  std::string words = "spaces as " + text(part, "replacement");
  if (scheme != "never") words += scheme == "first" ? ", one before the text" : ", one before it";
  return words + (flag(part, "split", true) ? ", split before them" : "");
}

std::string pre_tokenizer_part(const Json& part) {
  std::string type = type_of(part);
  if (type == "ByteLevel") {
    std::string words =
        flag(part, "add_prefix_space", true) ? "a space before the text, then " : "";
    if (flag(part, "use_regex", true)) words += "GPT-2's pattern, then ";
    return words + "bytes as characters";
  }
  if (type == "Split") {
    const std::string behavior = text(part, "behavior");
    return pattern_of(part) + (behavior == "Isolated" ? "" : " (" + behavior + ")") +
           (flag(part, "invert", false) ? ", inverted" : "");
  }
  if (type == "Metaspace") return metaspace_words(part);
  if (type == "BertPreTokenizer") return "words at white space, punctuation apart";
  if (type == "Whitespace") return "runs of letters and digits, and of other characters";
  if (type == "WhitespaceSplit") return "words at white space";
  if (type == "Punctuation") return "punctuation apart";
  if (type == "Digits")
    return flag(part, "individual_digits", false) ? "digits one by one" : "numbers apart";
  if (type == "UnicodeScripts") return "scripts apart";
  if (type == "CharDelimiterSplit") return "split at \"" + text(part, "delimiter") + "\"";
  return type;
}

std::string template_words(const Json& part) {
  std::string words;
  for (const Json& item : part.value("single", Json::array())) {
    if (item.contains("SpecialToken"))
      words += (words.empty() ? "" : " ") + text(item.at("SpecialToken"), "id");
    if (item.contains("Sequence")) words += (words.empty() ? "" : " ") + std::string("text");
  }
  return words;
}

std::string post_processor_part(const Json& part) {
  std::string type = type_of(part);
  if (type == "TemplateProcessing") return template_words(part);
  if (type == "ByteLevel") return "places without spaces";
  if (type != "BertProcessing" && type != "RobertaProcessing") return type;
  const auto name = [&](const char* key) {
    const auto pair = part.find(key);
    return pair != part.end() && pair->is_array() && !pair->empty() && pair->front().is_string()
               ? pair->front().get<std::string>()
               : std::string("?");
  };
  return name("cls") + " text " + name("sep");
}

std::string decoder_part(const Json& part) {
  std::string type = type_of(part);
  if (type == "ByteLevel") return "characters to bytes";
  if (type == "ByteFallback") return "<0x00>…<0xFF> to bytes";
  if (type == "Fuse") return "joined";
  if (type == "Metaspace") return text(part, "replacement") + " to spaces";
  if (type == "WordPiece")
    return "parts with " + text(part, "prefix") + " joined to the part before" +
           (flag(part, "cleanup", true) ? ", no space before punctuation" : "");
  if (type == "BPEDecoder") return text(part, "suffix") + " to spaces";
  if (type == "Replace") return pattern_of(part) + " replaced by \"" + text(part, "content") + "\"";
  if (type == "Strip") return "\"" + text(part, "content") + "\" removed at the ends";
  return type;
}

}  // namespace

std::string pattern_words(const std::string& pattern) {
  for (const auto& [known, name] : kPatternNames)
    if (known == pattern) return std::string(name);
  return "the pattern " + pattern;
}

std::string normalizer_words(const Json& component) {
  return sequence_words(component, "normalizers", normalizer_part);
}
std::string pre_tokenizer_words(const Json& component) {
  return sequence_words(component, "pretokenizers", pre_tokenizer_part);
}
std::string post_processor_words(const Json& component) {
  return sequence_words(component, "processors", post_processor_part);
}
std::string decoder_words(const Json& component) {
  return sequence_words(component, "decoders", decoder_part);
}

}  // namespace megatron
