// The help of a command, made from its table of settings.
#pragma once

#include <string>
#include <string_view>

#include "megatron/config/field.h"

namespace megatron {

/// Usage line, paragraph, and the fields by group, wrapped to `width` columns; 0: the width of the
/// terminal behind stdout.
std::string help_text(const FieldSet& fields, std::string_view command, int width = 0);

/// The entries of the fields in whose name, other spellings, choices or help `word` stands,
/// whatever its case and without its "--";
/// "" when there is none. With `hidden`, also the flags that are only known.
std::string search_help(const FieldSet& fields, std::string_view word, bool hidden, int width = 0);

/// The text in lines of at most `width` columns, each but the first indented by `indent`.
std::string wrap_text(std::string_view text, int width, int indent);

/// The spelling shown in help and documentation: "--lr X", "--no-mmap-bin-files", "PREFIX".
std::string field_usage(const Field& field);

/// Whether the default is a value of its own: one outside the range only marks a setting that must
/// be given or is derived.
bool has_default(const Field& field);

/// "required; at least 0; may be given several times", as far as it holds.
std::string field_limits(const Field& field);

/// The help sentence with default, limits and other spellings: "peak learning rate (default: 0.1;
/// at least 0)".
std::string field_help(const Field& field);

}  // namespace megatron
