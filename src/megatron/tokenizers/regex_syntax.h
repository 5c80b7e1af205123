// Translation of Oniguruma's Ruby dialect into PCRE2's, for the constructs in which they differ.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// `pattern` for PCRE2 with UTF, UCP and MULTILINE. Throws std::string (the reason) for what has no
/// translation: set intersections, nested classes, intervals followed by '+' that Ruby does not
/// read as possessive.
std::string translate_oniguruma(std::string_view pattern);

}  // namespace megatron
