// Formats the help of a command from its table of settings.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/field.h"

namespace megatron {

/// Returns the usage line, the first paragraph and the fields by group, wrapped to `width` columns.
/// If `width` is 0, it is the width of the terminal on stdout.
std::string help_text(const FieldSet& fields, std::string_view command, int width = 0);

/// Returns the help of the fields whose name, aliases, choices or help contain `word`, or "" if
/// there are none. Case and a leading "--" of `word` are ignored. If `hidden`, known flags without
/// effect are included.
std::string search_help(const FieldSet& fields, std::string_view word, bool hidden, int width = 0);

/// Wraps text to lines of at most `width` columns and indents all but the first by `indent`.
std::string wrap_text(std::string_view text, int width, int indent);

/// Returns the flag that the help shows, "--no-x" of a switch that is on by default, and the
/// aliases that mean the same.
std::string shown_flag(const Field& field);
std::vector<std::string> shown_aliases(const Field& field);

/// Returns the spelling shown in the help: "--lr X", "--no-mmap-bin-files" or "PREFIX".
std::string field_usage(const Field& field);

/// Returns whether the default is a valid value. A default outside the range only marks a setting
/// that must be given or is derived.
bool has_default(const Field& field);

/// Returns the limits that apply, such as "required; at least 0; may be given several times".
std::string field_limits(const Field& field);

/// Returns the help text with default, limits and aliases: "peak learning rate (default: 0.1; at
/// least 0)".
std::string field_help(const Field& field);

}  // namespace megatron
