// printf's formatting into a string: the one spelling that matches Python's `{:8d}`, `{:.6E}` digit
// for digit.
#pragma once

#include <string>

namespace megatron {

/// The text that printf would write.
[[gnu::format(printf, 1, 2)]] std::string format(const char* pattern, ...);

}  // namespace megatron
