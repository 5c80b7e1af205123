// Parses JSON into nlohmann::json. json_cursor.h reads the values. Include nlohmann/json.hpp only
// in .cpp files.
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

}  // namespace megatron
