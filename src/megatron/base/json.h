// Functions on nlohmann::json whose errors name the file and the field. Include nlohmann/json.hpp
// only in .cpp files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "megatron/base/json_fwd.h"

namespace megatron {

/// Parses `text`. Throws a UserError that names `source`, the line (if there are several) and the
/// column on a syntax error or if values are nested more than 200 deep.
Json parse_json(std::string_view text, const std::string& source);

/// Like parse_json(), but also throws a UserError if an object has the same key twice.
Json parse_json_unique_keys(std::string_view text, const std::string& source);

/// Reads and parses a file. Throws like parse_json(), and if the file cannot be read.
Json read_json(const std::filesystem::path& path);

/// Returns the value as one line without spaces. Bytes that are not UTF-8 become U+FFFD.
std::string compact_json(const Json& json);

/// Returns the member `key` of an object. Throws a UserError that names `source` and the key if it
/// is absent or if `object` is not an object.
const Json& json_at(const Json& object, const std::string& key, const std::string& source);

/// These functions return a member of one type. They throw a UserError that names `source` and the
/// key if the type differs. Integers must be exact: 1.5 and values beyond 64 bits are errors.
std::int64_t json_int(const Json& object, const std::string& key, const std::string& source);
double json_double(const Json& object, const std::string& key, const std::string& source);
bool json_bool(const Json& object, const std::string& key, const std::string& source);
std::string json_string(const Json& object, const std::string& key, const std::string& source);

}  // namespace megatron
