// Settings from a YAML, JSON or TOML file: flat keys (flag names with _ or -), or the same keys in
// sections named after the table's groups.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/command_line.h"

namespace megatron {

/// One key of a file with its values as text, before it is matched with a field.
struct FileEntry {
  std::string section;  ///< "" at the top
  std::string key;
  std::vector<std::string> values;
  bool is_null = false;  ///< written as null
  int line = 0;
};

/// Parsers of the two formats. Mistakes are UserErrors naming `source` and the line.
std::vector<FileEntry> parse_yaml(const std::string& text, const std::string& source);
std::vector<FileEntry> parse_toml(const std::string& text, const std::string& source);

/// Reads the file and matches its keys with the fields; mistakes go to `problems`.
std::vector<Assignment> read_config_file(const FieldIndex& index, const std::filesystem::path& path,
                                         Problems& problems);

/// A group's title as a section name: "Learning rate" is learning_rate.
std::string section_name(std::string_view group);

}  // namespace megatron
