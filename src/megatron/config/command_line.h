// Words after a command's name → settings, with the origin of each. Flags are spelled as argparse
// takes them with allow_abbrev=False:
// `--x v`, `--x=v`, lists up to the next flag, no abbreviations, `--` before words that are not
// flags.
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

/// Where a setting's value came from.
struct Origin {
  enum class Kind { default_value, file, environment, flag } kind = Kind::default_value;
  std::string where;  ///< "run.yaml:12", "MEGATRON_LR", "--lr"; empty for a default
};

/// What a parse found beside the values themselves.
struct ParseResult {
  std::map<std::string, Origin, std::less<>>
      origins;  ///< by field name; fields left at their default are absent
  /// Remarks for stderr about flags accepted without effect: the remark and the flags it is about.
  std::map<std::string, std::vector<std::string>> notes;
  std::set<std::string, std::less<>> failed;  ///< names of fields whose values did not fit

  /// Whether the field was given anywhere (file, environment or flag).
  bool is_set(std::string_view name) const { return origins.find(name) != origins.end(); }
  Origin origin(std::string_view name) const {
    const auto found = origins.find(name);
    return found == origins.end() ? Origin{} : found->second;
  }
};

/// Thrown when --help stands among the flags: print `text` on stdout and exit 0 (run_command does).
struct HelpRequested {
  std::string text;
};

/// Values for one field, before they are applied.
struct Assignment {
  const Field* field = nullptr;
  std::vector<std::string> values;
  Origin origin;
};

/// Splits the words into assignments; mistakes go to `problems`. Throws HelpRequested on --help or
/// -h.
std::vector<Assignment> read_flags(const FieldIndex& index, std::span<const std::string> args,
                                   std::string_view command, Problems& problems);

/// Applies assignments in order (a later one wins, repeatable fields grow) and records origins and
/// notes.
void apply_assignments(std::span<const Assignment> assignments, void* object, ParseResult& parsed,
                       Problems& problems);

/// One line for each remark, with the flags it is about: "note: --a, --b: without effect …".
std::string notes_text(const ParseResult& parsed);

/// Adds a problem for each required field that was not given.
void require_fields(const FieldSet& fields, const ParseResult& parsed, Problems& problems);

/// read_flags, apply_assignments and require_fields; throws one UserError with every mistake.
ParseResult parse_command_line(const FieldSet& fields, std::span<const std::string> args,
                               void* object, std::string_view command);

}  // namespace megatron
