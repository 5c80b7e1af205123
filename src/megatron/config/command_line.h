// Parses the words after a command's name into settings and records the origin of each. The syntax
// is that of Python's argparse with allow_abbrev=False: `--x v`, `--x=v`, lists end at the next
// flag, no abbreviations, and words after `--` are not flags.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/field.h"
#include "megatron/config/field_index.h"
#include "megatron/config/problems.h"

namespace megatron {

/// The source of a setting's value.
struct Origin {
  enum class Kind { default_value, file, environment, flag } kind = Kind::default_value;
  std::string where;  ///< "run.yaml:12", "MEGATRON_LR", "--lr"; empty for a default
};

/// The results of a parse, other than the values.
struct ParseResult {
  /// The origin of each field, by field name. Fields at their default are absent.
  std::map<std::string, Origin, std::less<>> origins;
  /// Notes for stderr, such as "without effect", with the flags that each note is about.
  Notes notes;
  std::set<std::string, std::less<>> failed;  ///< names of fields with invalid values

  /// Returns whether a file, the environment or a flag sets the field.
  bool is_set(std::string_view name) const { return origins.find(name) != origins.end(); }
  Origin origin(std::string_view name) const {
    const auto found = origins.find(name);
    return found == origins.end() ? Origin{} : found->second;
  }
};

/// Thrown if --help is among the flags. The catcher prints `text` on stdout and exits with 0;
/// run_command() does so.
struct HelpRequested {
  std::string text;
};

/// The values given for one field, before they are applied.
struct Assignment {
  const Field* field = nullptr;
  std::vector<std::string> values;
  Origin origin;
  std::string spelling = {};  ///< the flag that it stands for, as it is spelled: "--kebab-case"
};

/// Splits the words into assignments and adds mistakes to `problems`. Throws HelpRequested on
/// --help or -h.
std::vector<Assignment> read_flags(const FieldIndex& index, std::span<const std::string> args,
                                   std::string_view command, Problems& problems);

/// Applies assignments in order and records origins and notes. A later assignment replaces an
/// earlier one; repeatable fields append.
void apply_assignments(std::span<const Assignment> assignments, void* object, ParseResult& parsed,
                       Problems& problems);

/// Returns a line for each note, with its flags. Those on flags without effect are one block.
std::string notes_text(const Notes& notes);

/// Adds a note for each field that another one leaves without effect (FieldBuilder::only_with()).
void note_unread_fields(const FieldSet& fields, const void* object, ParseResult& parsed);

/// Adds a problem for each required field that was not given.
void require_fields(const FieldSet& fields, const ParseResult& parsed, Problems& problems);

/// Reads the environment, over which flags have precedence, and the flags: calls read_flags(),
/// apply_assignments() and require_fields(). Throws one UserError with all mistakes. A variable
/// that seems to misspell a setting is a note, as it may be a setting of another command.
ParseResult parse_command_line(const FieldSet& fields, std::span<const std::string> args,
                               void* object, std::string_view command);

}  // namespace megatron
