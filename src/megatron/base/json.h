// JSON as this project reads it: nlohmann::json behind functions whose errors name file and field.
// Include nlohmann/json.hpp in .cpp files.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace megatron {

using Json = nlohmann::json;
/// Keeps the order of keys: for files that people read.
using OrderedJson = nlohmann::ordered_json;

/// Parses `text`; a syntax error, or nesting deeper than 200, is a UserError naming `source` with
/// line and column.
Json parse_json(std::string_view text, const std::string& source);

/// parse_json that also refuses an object with the same key twice.
Json parse_json_unique_keys(std::string_view text, const std::string& source);

/// Reads and parses a file.
Json read_json(const std::filesystem::path& path);

/// The member `key` of an object; a UserError naming `source` and the key when absent or when
/// `object` is no object.
const Json& json_at(const Json& object, const std::string& key, const std::string& source);

/// Typed members, with a UserError naming `source` and the key on a wrong type. Integers must be
/// exact (no 1.5, no overflow).
std::int64_t json_int(const Json& object, const std::string& key, const std::string& source);
double json_double(const Json& object, const std::string& key, const std::string& source);
bool json_bool(const Json& object, const std::string& key, const std::string& source);
std::string json_string(const Json& object, const std::string& key, const std::string& source);

}  // namespace megatron
