// Implements the readers of YAML of config_file.h. They also read JSON, which is a subset of YAML.
#include <yaml-cpp/yaml.h>

#include <sstream>

#include "megatron/config/config_file.h"

namespace megatron {
namespace {

/// Returns whether the quoted scalar that starts at `position` is closed. yaml-cpp accepts a scalar
/// that is not.
bool is_closed(const std::string& text, std::size_t position) {
  if (position >= text.size()) return true;
  const char quote = text[position];
  if (quote != '"' && quote != '\'') return true;
  for (std::size_t i = position + 1; i < text.size(); ++i) {
    const bool is_escape = quote == '"'
                               ? text[i] == '\\'
                               : text[i] == quote && i + 1 < text.size() && text[i + 1] == quote;
    if (is_escape) {
      ++i;
    } else if (text[i] == quote) {
      return true;
    }
  }
  return false;
}

/// Returns the line at which a second document starts, or 0. yaml-cpp's LoadAll() is not used,
/// because it does not terminate on some malformed files.
int second_document(const std::string& text) {
  std::istringstream lines(text);
  bool has_content = false, has_ended = false;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    const bool starts = line == "---" || line.starts_with("--- ");
    const bool is_blank =
        line.find_first_not_of(" \t") == std::string::npos || line[0] == '#' || line[0] == '%';
    if (has_content && (starts || (has_ended && !is_blank))) return number;
    if (line == "..." && has_content) has_ended = true;
    if (!starts && !is_blank) has_content = true;
  }
  return 0;
}

/// Aliases may make a section part of itself, or repeat it without end.
constexpr std::size_t kMaxSectionName = 1000, kMaxEntries = 100'000;

class YamlReader {
 public:
  YamlReader(const std::string& text, const std::string& source, bool is_nested)
      : text_(text), source_(source), is_nested_(is_nested) {}

  std::vector<FileEntry> read() {
    if (const int line = second_document(text_); line > 0)
      fail(line, "a second document starts here", "keep one document in the file");
    const YAML::Node document = YAML::Load(text_);
    if (document.IsNull())
      throw UserError(
          {source_, "the file holds no settings", "write lines such as num_layers: 12"});
    if (!document.IsMap())
      fail(document, "expected keys with values", "write lines such as num_layers: 12");
    add_section("", document);
    return std::move(entries_);
  }

 private:
  [[noreturn]] void fail(int line, const std::string& got, const std::string& fix) const {
    throw UserError({source_ + ":" + std::to_string(line), got, fix});
  }
  [[noreturn]] void fail(const YAML::Node& node, const std::string& got,
                         const std::string& fix) const {
    fail(node.Mark().line + 1, got, fix);
  }

  std::string key_text(const YAML::Node& key) const {
    if (!key.IsScalar()) fail(key, "a key must be a word", "write lines such as num_layers: 12");
    return key.Scalar();
  }

  std::string scalar_text(const YAML::Node& value) const {
    const bool is_quoted = value.Tag() == "!";
    if (is_quoted && !is_closed(text_, value.Mark().pos))
      fail(value, "not valid YAML: a quote is not closed", "check that the file is whole");
    return value.Scalar();
  }

  void add_section(const std::string& section, const YAML::Node& map) {
    if (section.size() > kMaxSectionName || ++num_sections_ + entries_.size() > kMaxEntries)
      fail(map, "sections are nested without end", "check that the file is whole");
    for (const auto& pair : map) {
      const std::string key = key_text(pair.first);
      if (pair.second.IsMap() && (section.empty() || is_nested_))
        add_section(section.empty() ? key : section + "." + key, pair.second);
      else
        add(section, key, pair.first, pair.second);
    }
  }

  void add(const std::string& section, const std::string& key, const YAML::Node& key_node,
           const YAML::Node& value) {
    FileEntry entry{section, key, {}, value.IsNull(), key_node.Mark().line + 1};
    if (value.IsScalar()) {
      entry.values = {scalar_text(value)};
    } else if (value.IsSequence()) {
      for (const YAML::Node& item : value) {
        if (!item.IsScalar() && is_nested_) return;
        if (!item.IsScalar()) fail(item, "'" + key + "' must be a list of plain values", "");
        entry.values.push_back(scalar_text(item));
      }
    } else if (!value.IsNull()) {
      fail(key_node, "'" + key + "' contains a section within a section",
           "write its keys one level higher");
    }
    entries_.push_back(std::move(entry));
  }

  const std::string& text_;
  const std::string& source_;
  const bool is_nested_;
  std::size_t num_sections_ = 0;
  std::vector<FileEntry> entries_;
};

std::vector<FileEntry> read_yaml(const std::string& text, const std::string& source,
                                 bool is_nested) try {
  return YamlReader(text, source, is_nested).read();
} catch (const YAML::Exception& error) {
  const std::string line = error.mark.is_null() ? "" : ":" + std::to_string(error.mark.line + 1);
  throw UserError({source + line, "not valid YAML: " + error.msg, "check that the file is whole"});
}

}  // namespace

std::vector<FileEntry> parse_yaml(const std::string& text, const std::string& source) {
  return read_yaml(text, source, /*is_nested=*/false);
}

std::vector<FileEntry> parse_nested_yaml(const std::string& text, const std::string& source) {
  return read_yaml(text, source, /*is_nested=*/true);
}

}  // namespace megatron
