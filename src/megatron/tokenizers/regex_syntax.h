// Translates the constructs in which Oniguruma's Ruby dialect differs from PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// Returns `pattern` for PCRE2 with UTF, UCP and MULTILINE. Throws std::string with the reason for
/// constructs that cannot be translated: set intersections, nested classes, and an interval
/// followed by '+', which Ruby does not treat as possessive.
std::string translate_oniguruma(std::string_view pattern);

}  // namespace megatron
