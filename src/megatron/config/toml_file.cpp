// Implements parse_toml() of config_file.h.
#include <toml++/toml.h>

#include "megatron/config/config_file.h"
#include "megatron/config/field_values.h"

namespace megatron {
namespace {

class TomlReader {
 public:
  explicit TomlReader(const std::string& source) : source_(source) {}

  std::vector<FileEntry> read(const std::string& text) {
    const toml::table table = toml::parse(text, source_);
    if (table.empty())
      throw UserError(
          {source_, "the file holds no settings", "write lines such as num_layers = 12"});
    for (const auto& [key, value] : table) {
      if (const toml::table* section = value.as_table()) {
        for (const auto& [inner_key, inner] : *section)
          add(std::string(key.str()), std::string(inner_key.str()), inner);
      } else {
        add("", std::string(key.str()), value);
      }
    }
    return std::move(entries_);
  }

 private:
  [[noreturn]] void fail(const toml::node& node, const std::string& got) const {
    throw UserError({source_ + ":" + std::to_string(node.source().begin.line), got, ""});
  }

  std::string scalar(const std::string& key, const toml::node& node) const {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* integer = node.as_integer()) return std::to_string(integer->get());
    if (const auto* number = node.as_floating_point()) return number_text(number->get());
    if (const auto* boolean = node.as_boolean()) return boolean->get() ? "true" : "false";
    fail(node, "'" + key + "' must be text, a number, true or false, or a list of these");
  }

  void add(const std::string& section, const std::string& key, const toml::node& node) {
    FileEntry entry{section, key, {}, false, static_cast<int>(node.source().begin.line)};
    if (node.is_table()) fail(node, "'" + key + "' contains a section within a section");
    if (const toml::array* items = node.as_array()) {
      for (const toml::node& item : *items) entry.values.push_back(scalar(key, item));
    } else {
      entry.values = {scalar(key, node)};
    }
    entries_.push_back(std::move(entry));
  }

  const std::string& source_;
  std::vector<FileEntry> entries_;
};

}  // namespace

std::vector<FileEntry> parse_toml(const std::string& text, const std::string& source) {
  try {
    return TomlReader(source).read(text);
  } catch (const toml::parse_error& error) {
    throw UserError({source + ":" + std::to_string(error.source().begin.line),
                     "not valid TOML: " + std::string(error.description()),
                     "check that the file is whole"});
  }
}

}  // namespace megatron
