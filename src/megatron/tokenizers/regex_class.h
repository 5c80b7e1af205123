// Translates classes of characters, such as [a-z&&[^b]], and the escapes that may stand in them.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/tokenizers/regex.h"

namespace megatron {

/// A set of code points, for the classes that PCRE2 does not know: classes nested in classes, and
/// intersections.
class CharacterSet {
 public:
  /// Adds the characters from `first` to `last`. They come after all characters of the set.
  void append(char32_t first, char32_t last);

  CharacterSet complement() const;
  CharacterSet united(const CharacterSet& other) const;
  CharacterSet intersected(const CharacterSet& other) const;

  /// Returns the members of a class of PCRE2, without its brackets; "": no character is in the set.
  std::string class_members() const;

 private:
  struct Range {
    char32_t first, last;
  };
  std::vector<Range> ranges_;  // sorted, with gaps between them
};

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

/// A class of characters with a name, as [:^alpha:] and \P{Alpha}.
struct NamedClass {
  std::string_view members;  ///< of a class of PCRE2
  bool is_negated = false;
  std::size_t size = 0;  ///< of its text in the pattern
};
/// Returns the class with POSIX's name that \p{…} or \P{…} at `at` of the pattern stands for;
/// nothing for other properties. Only Oniguruma has them.
std::optional<NamedClass> posix_property(std::string_view pattern, std::size_t at,
                                         RegexDialect dialect);

/// Returns what \w or, for 'h', Oniguruma's \h matches inside a class, as members of it.
std::string_view members_of_escape(char letter, RegexDialect dialect);

}  // namespace megatron
