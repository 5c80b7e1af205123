// Translates the constructs in which the dialects of tokenizers differ from PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "megatron/tokenizers/regex.h"

namespace megatron {

/// Returns `pattern` for PCRE2 with UTF and UCP; Oniguruma's also needs MULTILINE. Throws
/// std::string with the reason for constructs that cannot be translated: set intersections, nested
/// classes, and in Ruby's dialect an interval followed by '+', which is not possessive there.
std::string translate_regex(std::string_view pattern, RegexDialect dialect);

}  // namespace megatron
