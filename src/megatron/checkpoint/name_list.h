// Lists of tensor names in messages.
#pragma once

#include <span>
#include <string>

namespace megatron {

/// "a, b, c and 12 more".
std::string name_list(std::span<const std::string> names);

/// UserError with `what` and the names unless there are none.
void require_no_names(const std::string& what, std::span<const std::string> names);

}  // namespace megatron
