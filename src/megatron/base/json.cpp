#include "megatron/base/json.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"

namespace megatron {
namespace {

[[noreturn]] void wrong_type(const Json& value, const std::string& key, const std::string& source, const char* expected) {
  std::string got = value.dump();
  if (got.size() > 80) got = got.substr(0, 77) + "...";
  throw UserError({source + ": field '" + key + "' must be " + expected, "got " + got, ""});
}

}  // namespace

Json parse_json(std::string_view text, const std::string& source) {
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    const std::size_t position = std::min<std::size_t>(error.byte > 0 ? error.byte - 1 : 0, text.size());
    const auto before = text.substr(0, position);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const auto start = before.rfind('\n');
    const auto column = start == std::string_view::npos ? position + 1 : position - start;
    throw UserError({source + ": not valid JSON at line " + std::to_string(line) + ", column " + std::to_string(column),
                     text.empty() ? "the file is empty" : "", "check that the file is whole"});
  }
}

Json read_json(const std::filesystem::path& path) { return parse_json(read_file(path), path.string()); }

const Json& json_at(const Json& object, const std::string& key, const std::string& source) {
  if (!object.is_object()) throw UserError({source + ": expected a JSON object with field '" + key + "'", "got " + std::string(object.type_name()), ""});
  const auto found = object.find(key);
  if (found == object.end()) throw UserError({source + ": field '" + key + "' is missing", "", ""});
  return *found;
}

std::int64_t json_int(const Json& object, const std::string& key, const std::string& source) {
  const Json& value = json_at(object, key, source);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
    wrong_type(value, key, source, "a 64-bit integer");
  if (value.is_number_integer()) return value.get<std::int64_t>();
  wrong_type(value, key, source, "an integer");
}

double json_double(const Json& object, const std::string& key, const std::string& source) {
  const Json& value = json_at(object, key, source);
  if (!value.is_number()) wrong_type(value, key, source, "a number");
  return value.get<double>();
}

bool json_bool(const Json& object, const std::string& key, const std::string& source) {
  const Json& value = json_at(object, key, source);
  if (!value.is_boolean()) wrong_type(value, key, source, "true or false");
  return value.get<bool>();
}

std::string json_string(const Json& object, const std::string& key, const std::string& source) {
  const Json& value = json_at(object, key, source);
  if (!value.is_string()) wrong_type(value, key, source, "a string");
  return value.get<std::string>();
}

}  // namespace megatron
