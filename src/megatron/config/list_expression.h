// Evaluates Megatron's layer patterns: Python list expressions of digits, commas, brackets, + and
// *, such as "([1]*3+[0])*2".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

/// Returns the list, or nullopt if `text` is not a list expression or has more than 100,000 items.
/// Does not throw.
std::optional<std::vector<std::int64_t>> list_expression(const std::string& text);

/// Returns N if `text` is an integer N of at least 1, as in "every N-th layer". Does not throw.
std::optional<std::int64_t> layer_period(const std::string& text);

}  // namespace megatron
