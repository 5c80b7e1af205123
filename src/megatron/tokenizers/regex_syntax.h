// Translates the constructs in which the dialects of tokenizers differ from PCRE2.
#pragma once

#include <string>
#include <string_view>

#include "megatron/tokenizers/regex.h"
#include "megatron/tokenizers/regex_class.h"

namespace megatron {

/// Returns `pattern` for PCRE2 with UTF and UCP; Oniguruma's also needs MULTILINE. Throws
/// std::string with the reason for constructs that cannot be translated: those of
/// translate_class(), and in Ruby's dialect an interval followed by '+', which is not possessive
/// there.
std::string translate_regex(std::string_view pattern, RegexDialect dialect,
                            const CharactersOf& characters_of);

}  // namespace megatron
