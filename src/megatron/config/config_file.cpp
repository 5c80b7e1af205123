#include "megatron/config/config_file.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "megatron/base/files.h"
#include "megatron/base/words.h"
#include "megatron/config/field_index.h"
#include "megatron/config/field_values.h"

namespace megatron {
namespace {

/// The sections of Megatron-LM's --yaml-cfg, which are named after its configuration classes.
constexpr std::array<std::string_view, 2> kClassSections{"language_model", "model_parallel"};

/// Returns the spelling of a key. Private members of Megatron-LM's classes begin with '_'.
std::string kebab(std::string text) {
  std::replace(text.begin(), text.end(), '_', '-');
  return text.erase(0, text.find_first_not_of('-'));
}

std::string snake(std::string text) {
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
}

/// Matches the entries of one file with the fields.
class EntryMatcher {
 public:
  EntryMatcher(const FieldIndex& index, std::string source, Problems& problems)
      : index_(index), source_(std::move(source)), problems_(problems) {
    for (const Field& field : index.fields().fields) sections_.insert(section_name(field.group));
    for (const std::string_view section : kClassSections) sections_.emplace(section);
  }

  std::optional<Assignment> match(const FileEntry& entry) {
    const std::string where = source_ + ":" + std::to_string(entry.line) + ": " + entry.key;
    check_section(entry);
    const std::string spelling = kebab(entry.key);
    const Spelling meaning = meaning_of(spelling);
    if (!meaning.field) {
      const std::string near = index_.nearest(spelling);
      problems_.add({where, "unknown key",
                     near.empty() ? "see the keys of megatron --print-config"
                                  : "did you mean " + snake(near) + "?"});
      return std::nullopt;
    }
    if (entry.is_null && !meaning.field->is_optional) return std::nullopt;
    std::vector<std::string> values =
        entry.is_null ? std::vector<std::string>{"none"} : entry.values;
    if (meaning.turns_off && !invert(values, where)) return std::nullopt;
    // Of two keys of one setting, null gives way: Megatron-LM's files have encoder_num_layers too.
    auto& [line, given] = given_[meaning.field];
    if (line > 0 && !entry.is_null && given != values)
      problems_.add(
          {where, "was given before, in line " + std::to_string(line), "keep one of the two"});
    if (line > 0) return std::nullopt;
    if (!entry.is_null) line = entry.line, given = values;
    return Assignment{
        meaning.field, std::move(values), {Origin::Kind::file, where}, "--" + spelling};
  }

 private:
  /// Megatron-LM names what --no-x turns off x.
  Spelling meaning_of(const std::string& key) const {
    if (const Spelling meaning = index_.find(key); meaning.field) return meaning;
    for (const char* off : {"no-", "disable-"}) {
      const Spelling meaning = index_.find(off + key);
      if (meaning.field && meaning.field->is_switch()) return {meaning.field, !meaning.turns_off};
    }
    return {};
  }

  void check_section(const FileEntry& entry) {
    if (entry.section.empty() || sections_.contains(snake(entry.section)) ||
        !reported_.insert(entry.section).second)
      return;
    const std::vector<std::string> names(sections_.begin(), sections_.end());
    const std::string near = nearest_name(snake(entry.section), names);
    problems_.add({source_ + ":" + std::to_string(entry.line) + ": section " + entry.section,
                   "unknown section",
                   near.empty() ? "sections are named after the groups of --help"
                                : "did you mean " + near + "?"});
  }

  bool invert(std::vector<std::string>& values, const std::string& where) {
    try {
      values = {inverted(single_value(values))};
      return true;
    } catch (const FieldError& error) {
      problems_.add({where + ": " + error.reason, "", error.fix});
      return false;
    }
  }

  const FieldIndex& index_;
  std::string source_;
  Problems& problems_;
  std::set<std::string> sections_, reported_;
  std::map<const Field*, std::pair<int, std::vector<std::string>>> given_;  ///< line and values
};

}  // namespace

std::string section_name(std::string_view group) {
  std::string name = lower_case(group);
  std::ranges::replace(name, ' ', '_');
  return name;
}

std::vector<Assignment> read_config_file(const FieldIndex& index, const std::filesystem::path& path,
                                         Problems& problems) {
  const std::string extension = path.extension().string();
  const bool is_yaml = extension == ".yaml" || extension == ".yml" || extension == ".json";
  if (!is_yaml && extension != ".toml") {
    problems.add({"--config " + path.string(), "has an unknown extension",
                  "name the file .yaml, .yml, .json or .toml"});
    return {};
  }
  std::vector<Assignment> assignments;
  try {
    const std::string text = read_file(path);
    EntryMatcher matcher(index, path.string(), problems);
    for (const FileEntry& entry :
         is_yaml ? parse_yaml(text, path.string()) : parse_toml(text, path.string())) {
      if (auto assignment = matcher.match(entry)) assignments.push_back(std::move(*assignment));
    }
  } catch (const UserError& error) {
    problems.add(error.parts());
  }
  return assignments;
}

}  // namespace megatron
