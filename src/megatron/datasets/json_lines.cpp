#include "megatron/datasets/json_lines.h"

#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/datasets/text_chunks.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {

static_assert(TextChunk::kPadding >= simdjson::SIMDJSON_PADDING);

struct JsonLineParser::Simd {
  simdjson::dom::parser parser;
};

JsonLineParser::JsonLineParser(std::vector<std::string> keys)
    : simd_(std::make_unique<Simd>()), keys_(std::move(keys)), texts_(keys_.size()) {}
JsonLineParser::~JsonLineParser() = default;

void JsonLineParser::refuse(const std::string& what, const std::string& source,
                            const std::string& fix) const {
  throw UserError({source + ": " + what, "", fix});
}

void JsonLineParser::require_all(const std::vector<bool>& found, const std::string& source) const {
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (!found[i])
      refuse("no field '" + keys_[i] + "'", source,
             "name the field that holds the text with --json-keys");
  }
}

const std::vector<std::vector<std::string_view>>& JsonLineParser::parse(std::string_view line,
                                                                        const std::string& source) {
  for (auto& texts : texts_) texts.clear();
  owned_.clear();
  replaced_.clear();
  simdjson::dom::element element;
  auto error =
      simd_->parser.parse(line.data(), line.size(), /*realloc_if_needed=*/false).get(element);
  if (auto valid = error ? replace_invalid_utf8(line) : std::nullopt) {
    const std::size_t size = valid->size();
    replaced_ = std::move(*valid) + std::string(TextChunk::kPadding, '\0');
    line = std::string_view(replaced_).substr(0, size);
    error = simd_->parser.parse(line.data(), line.size(), /*realloc_if_needed=*/false).get(element);
  }
  if (error) {
    parse_with_nlohmann(line, source, simdjson::error_message(error));
    return texts_;
  }
  simdjson::dom::object object;
  if (element.get(object)) refuse("expected a JSON object", source);
  std::vector<bool> found(keys_.size(), false);
  for (const auto& [name, value] : object) {
    const auto key = std::find(keys_.begin(), keys_.end(), name);
    if (key == keys_.end()) continue;
    const auto index = static_cast<std::size_t>(key - keys_.begin());
    found[index] = true;
    texts_[index].clear();  // the last of repeated names counts, as in Python
    std::string_view text;
    simdjson::dom::array list;
    if (!value.get(text)) {
      texts_[index].push_back(text);
    } else if (!value.get(list)) {
      for (const auto& item : list) {
        if (item.get(text))
          refuse("field '" + *key + "' must be a string or a list of strings", source);
        texts_[index].push_back(text);
      }
    } else {
      refuse("field '" + *key + "' must be a string or a list of strings", source);
    }
  }
  require_all(found, source);
  return texts_;
}

/// Slow path for JSON that simdjson rejects: integers beyond 64 bits, deep nesting.
void JsonLineParser::parse_with_nlohmann(std::string_view line, const std::string& source,
                                         const std::string& reason) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) refuse("not valid JSON: " + reason, source, "fix or remove the line");
  if (!object.is_object()) refuse("expected a JSON object", source);
  std::vector<bool> found(keys_.size(), false);
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    const auto member = object.find(keys_[i]);
    if (member == object.end()) continue;
    found[i] = true;
    // Nothing is copied: a copy of a deeply nested value would exhaust the stack.
    const auto add = [&](const Json& item) {
      if (!item.is_string())
        refuse("field '" + keys_[i] + "' must be a string or a list of strings", source);
      owned_.push_back(std::make_unique<std::string>(item.get<std::string>()));
      texts_[i].push_back(*owned_.back());
    };
    if (member->is_array()) {
      for (const Json& item : *member) add(item);
    } else {
      add(*member);
    }
  }
  require_all(found, source);
}

}  // namespace megatron
