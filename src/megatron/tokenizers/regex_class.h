// Translates classes of characters, such as [a-z&&[^b]], and the escapes that may stand in them.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "megatron/tokenizers/character_set.h"
#include "megatron/tokenizers/regex.h"

namespace megatron {

/// Returns the characters that a class of PCRE2, such as "[\d]", matches. Throws std::string with
/// the reason when PCRE2 does not take the class.
using CharactersOf = std::function<CharacterSet(const std::string& pcre2_class)>;

/// Returns for PCRE2 the class whose bracket is at `at` of the pattern, and moves `at` past it.
/// Throws std::string with the reason when it cannot be translated.
std::string translate_class(std::string_view pattern, std::size_t& at, RegexDialect dialect,
                            const CharactersOf& characters_of);

/// Returns for PCRE2 the escape at `at` of the pattern, and moves `at` past it. The escape is none
/// of \w, \W, \h and \H.
std::string translate_escape(std::string_view pattern, std::size_t& at, RegexDialect dialect);

/// Returns what \w or, for 'h', Oniguruma's \h matches inside a class, as members of it.
std::string_view members_of_escape(char letter, RegexDialect dialect);

}  // namespace megatron
