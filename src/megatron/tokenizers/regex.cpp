#include "megatron/tokenizers/regex.h"

#include <map>

#include "megatron/base/error.h"
#include "megatron/tokenizers/regex_syntax.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

/// Finds what classes match, in the text of all characters.
class ClassMembers {
 public:
  const CharacterSet& operator()(const std::string& pcre2_class) {
    const auto [found, is_new] = known_.try_emplace(pcre2_class);
    if (is_new) found->second = find(pcre2_class);
    return found->second;
  }

 private:
  CharacterSet find(const std::string& pcre2_class) {
    if (text_.empty())
      for (char32_t c = 0; c <= 0x10FFFF; ++c)
        if (c < 0xD800 || c > 0xDFFF) append_utf8(text_, c);
    const Pattern pattern(pcre2_class + "+", Pattern::Anchors::lines);
    Pattern::Finder finder(pattern);
    CharacterSet set;
    std::size_t start = 0;
    while (const auto match = finder.find(text_, start)) {
      std::size_t first = match->begin, last = start = match->end;
      const char32_t first_character = next_code_point(text_, first);
      set.append(first_character, previous_code_point(text_, last));
    }
    return set;
  }

  std::string text_;
  std::map<std::string, CharacterSet> known_;
};

/// Compiles a pattern in a dialect. `source` names file and field.
Pattern compile(const std::string& pattern, const std::string& source, RegexDialect dialect) {
  const bool is_rust = dialect == RegexDialect::rust;
  try {
    return {translate_regex(pattern, dialect, ClassMembers()),
            is_rust ? Pattern::Anchors::text : Pattern::Anchors::lines};
  } catch (const std::string& reason) {
    throw UserError({source + ": the regular expression is not usable",
                     reason + " in \"" + pattern + "\"", "check the pattern"});
  }
}

}  // namespace

Regex::Regex(std::string pattern, const std::string& source, RegexDialect dialect)
    : pattern_(std::move(pattern)), compiled_(compile(pattern_, source, dialect)) {}

std::optional<Span> Regex::Finder::search(std::string_view text, std::size_t start) {
  try {
    return finder_.find(text, start);
  } catch (const std::string& reason) {
    throw UserError(
        {"the tokenizer's pattern gave up on a text of " + std::to_string(text.size()) + " bytes",
         reason + " in \"" + regex_.pattern_ + "\"", "split the text into shorter documents"});
  }
}

void Regex::Finder::find_all(std::string_view text, std::size_t base, std::vector<Span>& matches) {
  std::size_t start = 0;
  std::size_t last_end = std::string_view::npos;
  while (start <= text.size()) {
    const auto match = search(text, start);
    if (!match) break;
    // After an empty match at a match's end, advance one character.
    if (match->begin == match->end && match->end == last_end) {
      do ++start;
      while (start < text.size() && is_continuation_byte(text[start]));
      continue;
    }
    matches.push_back({base + match->begin, base + match->end});
    start = last_end = match->end;
  }
}

std::string escape_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~/").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

}  // namespace megatron
