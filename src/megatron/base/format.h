// printf formatting into a string. Its digits match Python's `{:8d}` and `{:.6E}`.
#pragma once

#include <string>

namespace megatron {

/// Returns the text that printf would print.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

}  // namespace megatron
