#include "megatron/datasets/json_lines.h"

#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/datasets/text_chunks.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

/// Returns the size of the JSON number at the beginning of `text`; 0 if there is none.
std::size_t number_size(std::string_view text) {
  std::size_t at = 0;
  const auto take_digits = [&] {
    const std::size_t first = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at - first;
  };
  if (text.starts_with('-')) ++at;
  if (text.substr(at).starts_with('0')) {
    ++at;
  } else if (take_digits() == 0) {
    return 0;
  }
  std::size_t end = at;
  if (text.substr(at).starts_with('.')) {
    ++at;
    if (take_digits() == 0) return end;
    end = at;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (take_digits() > 0) end = at;
  }
  return end;
}

/// Returns the size of the number at the beginning of `text`, with the words that Python's
/// json.loads takes for one; 0 if there is none.
std::size_t python_number_size(std::string_view text) {
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"})
    if (text.starts_with(word)) return word.size();
  return number_size(text);
}

/// Returns the line with a 0 in place of every number, and spaces behind it. Numbers are of no
/// interest here, but simdjson refuses NaN, Infinity and those beyond the range of its types, which
/// Python's json.loads takes.
std::string without_numbers(std::string_view line) {
  constexpr std::string_view kBeforeValue = "[:, \t\n\r";
  std::string result(line);
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (in_string && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      in_string = !in_string;
    } else if (!in_string && i > 0 && kBeforeValue.find(line[i - 1]) != std::string_view::npos) {
      const std::size_t size = python_number_size(line.substr(i));
      if (size == 0) continue;
      result.replace(i, size, "0" + std::string(size - 1, ' '));
      i += size - 1;
    }
  }
  return result;
}

}  // namespace

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
  had_invalid_utf8_ = false;
  simdjson::dom::element element;
  const auto parse_line = [&] {
    return simd_->parser.parse(line.data(), line.size(), /*realloc_if_needed=*/false).get(element);
  };
  const auto replace_line = [&](std::string text) {
    const std::size_t size = text.size();
    replaced_ = std::move(text) + std::string(TextChunk::kPadding, '\0');
    line = std::string_view(replaced_).substr(0, size);
  };
  auto error = parse_line();
  if (auto valid = error ? replace_invalid_utf8(line) : std::nullopt) {
    had_invalid_utf8_ = true;
    replace_line(*std::move(valid));
    error = parse_line();
  }
  if (error) {
    replace_line(without_numbers(line));
    error = parse_line();
  }
  if (error) {
    parse_with_nlohmann(line, source);
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

/// Slow path for JSON that simdjson rejects: it is nested too deeply, or broken.
void JsonLineParser::parse_with_nlohmann(std::string_view line, const std::string& source) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded()) parse_json(line, source);  // names what is wrong, and the column
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
