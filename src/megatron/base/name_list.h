// Formats lists of tensor names for messages.
#pragma once

#include <span>
#include <string>

namespace megatron {

/// Returns the first 20 names in one line: "a, b, c and 12 more".
std::string name_list(std::span<const std::string> names);

/// Returns the first 10 names, each on its own line, and the number of further names.
std::string name_lines(std::span<const std::string> names);

/// Throws a UserError with `what`, the number of names, the names and `fix` if `names` is not
/// empty.
void require_no_names(const std::string& what, std::span<const std::string> names,
                      const std::string& fix);

/// Throws a UserError with `what`, the names of both lists, their numbers and `fix` unless both are
/// empty.
void require_same_names(const std::string& what, std::span<const std::string> missing,
                        std::span<const std::string> unexpected, const std::string& fix);

}  // namespace megatron
