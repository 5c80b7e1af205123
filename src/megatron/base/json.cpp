#include "megatron/base/json.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

/// Returns " at line 3, column 7", or " at column 7" if the text is one line: its source names the
/// line then.
std::string at_place(std::string_view text, std::size_t position) {
  const auto before = text.substr(0, std::min(position, text.size()));
  const auto start = before.rfind('\n');
  const std::size_t column =
      start == std::string_view::npos ? before.size() + 1 : before.size() - start;
  const auto first_end = text.find('\n');
  const bool is_one_line = first_end == std::string_view::npos || first_end + 1 == text.size();
  const std::string column_text = "column " + std::to_string(column);
  if (is_one_line) return " at " + column_text;
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  return " at line " + std::to_string(line) + ", " + column_text;
}

/// Refuses deeply nested text, because recursive functions on the value would exhaust the stack.
void limit_depth(std::string_view text, const std::string& source) {
  constexpr int kDeepest = 200;
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      quoted = c != '"';
    } else if (c == '"') {
      quoted = true;
    } else if ((c == '{' || c == '[') && ++depth > kDeepest) {
      throw UserError({source + ": values are nested deeper than " + std::to_string(kDeepest) +
                           " levels" + at_place(text, i),
                       "", "check that the file is whole"});
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
}

bool is_half_surrogate(const std::exception& error) {
  return std::string_view(error.what()).find("invalid string: surrogate") != std::string_view::npos;
}

/// Returns how errors name the number that makes the parser stop.
std::string last_name(std::string_view text, const std::string& source) {
  std::map<int, std::string> keys;  // by depth, of the objects that are open
  const auto note = [&](int depth, Json::parse_event_t event, const Json& parsed) {
    const bool is_key = event == Json::parse_event_t::key;
    if (is_key || event == Json::parse_event_t::object_end)
      keys.erase(keys.lower_bound(is_key ? depth : depth + 1), keys.end());
    if (is_key) keys[depth] = parsed.get<std::string>();
    return true;
  };
  const Json discarded = Json::parse(text, note, /*allow_exceptions=*/false);
  const std::string path = joined_text(keys, ".", [](const auto& key) { return key.second; });
  return source + (path.empty() ? "" : ": field '" + path + "'");
}

Json parse(std::string_view text, const std::string& source,
           const Json::parser_callback_t& callback) {
  limit_depth(text, source);
  try {
    return Json::parse(text, callback);
  } catch (const Json::out_of_range&) {
    throw UserError({last_name(text, source), "the number is larger than a double can hold", ""});
  } catch (const Json::exception& error) {
    const auto* syntax = dynamic_cast<const Json::parse_error*>(&error);
    throw UserError(
        {source + ": " + json_fault(error) +
             at_place(text, syntax != nullptr && syntax->byte > 0 ? syntax->byte - 1 : 0),
         text.empty() ? "the file is empty" : "",
         is_half_surrogate(error) ? "remove the escape, or write both halves"
                                  : "check that the file is whole"});
  }
}

}  // namespace

const char* json_fault(const std::exception& error) {
  return is_half_surrogate(error) ? "half of a surrogate pair, which is no character,"
                                  : "not valid JSON";
}

Json parse_json(std::string_view text, const std::string& source) {
  return parse(text, source, nullptr);
}

Json parse_json_unique_keys(std::string_view text, const std::string& source) {
  std::vector<std::set<std::string>> keys;
  return parse(text, source, [&](int depth, Json::parse_event_t event, Json& parsed) {
    const auto level = static_cast<std::size_t>(depth);
    if (event == Json::parse_event_t::object_start) {
      keys.resize(level + 1);
      keys[level].clear();
    } else if (event == Json::parse_event_t::key &&
               !keys[level - 1].insert(parsed.get<std::string>()).second) {
      throw UserError(
          {source + ": key '" + parsed.get<std::string>() + "' appears twice in one object", "",
           "check that the file is whole"});
    }
    return true;
  });
}

Json parse_python_json(std::string_view text, const std::string& source) {
  std::string strict;
  bool is_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view rest = text.substr(i);
    constexpr std::array<std::string_view, 3> kWords{"-Infinity", "Infinity", "NaN"};
    const auto* const word = std::ranges::find_if(
        kWords, [&](std::string_view one) { return !is_string && rest.starts_with(one); });
    if (word != kWords.end()) {
      strict += R"({"__float__": ")" + std::string(*word) + "\"}";
      i += word->size() - 1;
      continue;
    }
    if (text[i] == '"') is_string = !is_string;
    strict += text[i];
    if (is_string && text[i] == '\\' && i + 1 < text.size()) strict += text[++i];
  }
  return parse_json(strict, source);
}

Json read_json(const std::filesystem::path& path) {
  return parse_json(read_file(path), path.string());
}

std::string compact_json(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

JsonCursor::JsonCursor(Json&& value, std::string source)
    : JsonCursor(std::make_shared<const Json>(std::move(value)), std::move(source), "", "") {}

JsonCursor JsonCursor::operator[](const std::string& key) const {
  if (!value_->is_object())
    throw UserError({place() + ": expected a JSON object with field '" + key + "'",
                     std::string(value_->type_name()), ""});
  if (auto member = find(key)) return *std::move(member);
  throw UserError({place() + ": field '" + key + "' is missing", "", ""});
}

std::optional<JsonCursor> JsonCursor::find(const std::string& key) const {
  const auto found = value_->find(key);  // the end unless the value is an object
  if (found == value_->end()) return std::nullopt;
  return JsonCursor({value_, &*found}, place(), key_.empty() ? ": " : ".", key);
}

std::optional<JsonCursor> JsonCursor::find_given(const std::string& key) const {
  std::optional<JsonCursor> member = find(key);
  if (member && (*member)->is_null()) member.reset();
  return member;
}

void JsonCursor::allow_only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, json] : object().items())
    if (!json.is_null() && std::ranges::count(keys, key) == 0)
      throw UserError({operator[](key).name(), "is not known here", "leave it out"});
}

const Json& JsonCursor::object() const { return require(value_->is_object(), "an object"); }

const Json& JsonCursor::array() const { return require(value_->is_array(), "an array"); }

std::vector<JsonCursor> JsonCursor::elements() const {
  std::vector<JsonCursor> all;
  for (const Json& element : array())
    all.push_back({{value_, &element}, place(), "", '[' + std::to_string(all.size()) + ']'});
  return all;
}

std::int64_t JsonCursor::integer() const {
  require(value_->is_number_integer(), "an integer");
  require(
      !value_->is_number_unsigned() ||
          value_->get<std::uint64_t>() <= std::uint64_t(std::numeric_limits<std::int64_t>::max()),
      "a 64-bit integer");
  return value_->get<std::int64_t>();
}

double JsonCursor::number() const { return require(value_->is_number(), "a number").get<double>(); }

bool JsonCursor::boolean() const {
  return require(value_->is_boolean(), "true or false").get<bool>();
}

std::string JsonCursor::text() const {
  return require(value_->is_string(), "a string").get<std::string>();
}

const Json& JsonCursor::require(bool is_right, const char* expected) const {
  if (is_right) return *value_;
  std::string got = value_->dump();
  if (got.size() > 80) got = got.substr(0, 77) + "...";
  throw UserError(name() + " must be " + expected + ", got " + got);
}

}  // namespace megatron

template class nlohmann::basic_json<>;  // see cmake/json_instance.h
