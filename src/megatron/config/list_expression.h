// Megatron's layer patterns: Python list expressions of digits, commas, brackets, + and *, such as
// "([1]*3+[0])*2".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

/// The list that `text` denotes, or nullopt when it is no such expression or longer than 100,000
/// items. Never throws.
std::optional<std::vector<std::int64_t>> list_expression(const std::string& text);

}  // namespace megatron
