// Lists of tensor names in messages.
#pragma once

#include <span>
#include <string>

namespace megatron {

/// "a, b, c and 12 more".
std::string name_list(std::span<const std::string> names);

/// The first names, each on a line of its own, and how many more there are.
std::string name_lines(std::span<const std::string> names);

/// UserError with `what`, their number, the names and `fix`, unless there are none.
void require_no_names(const std::string& what, std::span<const std::string> names,
                      const std::string& fix);

}  // namespace megatron
