// Reads settings from a YAML, JSON or TOML file. Keys are flag names with _ or -, either at the top
// level or in sections named after the table's groups, or after the classes of Megatron-LM's
// --yaml-cfg.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/command_line.h"

namespace megatron {

/// One key of a file and its values as text, before it is matched with a field.
struct FileEntry {
  std::string section;  ///< "" at the top level
  std::string key;
  std::vector<std::string> values;
  bool is_null = false;  ///< written as null
  int line = 0;
};

/// Parses YAML (which includes JSON) or TOML. Throws a UserError that names `source` and the line.
std::vector<FileEntry> parse_yaml(const std::string& text, const std::string& source);
std::vector<FileEntry> parse_toml(const std::string& text, const std::string& source);

/// Parses YAML of another program: sections within sections are "outer.inner", and lists of other
/// than plain values are left out.
std::vector<FileEntry> parse_nested_yaml(const std::string& text, const std::string& source);

/// Reads a file, matches its keys with the fields and adds mistakes to `problems`.
std::vector<Assignment> read_config_file(const FieldIndex& index, const std::filesystem::path& path,
                                         Problems& problems);

/// Converts a group's title to a section name: "Learning rate" becomes learning_rate.
std::string section_name(std::string_view group);

}  // namespace megatron
