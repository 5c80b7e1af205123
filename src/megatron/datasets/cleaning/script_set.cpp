#include "megatron/datasets/cleaning/script_set.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/tokenizers/regex.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

constexpr char32_t kCodePoints = 0x110000;

/// Returns all characters in order, as UTF-8.
std::string all_characters() {
  std::string all;
  for (char32_t c = 0; c < kCodePoints; ++c)
    if (c < 0xd800 || c > 0xdfff) append_utf8(all, c);
  return all;
}

}  // namespace

ScriptSet::ScriptSet(const std::vector<std::string>& names) : contains_(kCodePoints, false) {
  std::string pattern;
  for (const std::string& name : names) {
    const auto is_name = [](char c) {
      return c == '_' || std::isalpha(static_cast<unsigned char>(c));
    };
    if (name.empty() || !std::ranges::all_of(name, is_name))
      throw UserError({"--scripts: no script is called " + name, "",
                       "give names of Unicode scripts, as Latin, Cyrillic or Han"});
    pattern += "\\p{" + name + "}";
  }
  try {
    const Regex regex("[" + pattern + "]+", "--scripts");
    Regex::Finder finder(regex);
    const std::string all = all_characters();
    std::string storage;
    std::vector<Span> matches;
    finder.find_all(replace_unassigned_characters(all, storage), 0, matches);
    for (const Span& match : matches)
      for (std::size_t at = match.begin; at < match.end;)
        contains_[next_code_point(all, at)] = true;
  } catch (const UserError& error) {
    throw UserError({"--scripts " + names.front() + (names.size() > 1 ? " ..." : "") +
                         ": a script is not known",
                     error.parts().what,
                     "give names of Unicode scripts, as Latin, Cyrillic or Han"});
  }
}

double ScriptSet::letter_ratio(std::string_view text) const {
  std::size_t letters = 0, own = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = next_code_point(text, at);
    if (!is_letter(c)) continue;
    ++letters;
    own += contains_[c];
  }
  return letters == 0 ? 1.0 : static_cast<double>(own) / static_cast<double>(letters);
}

}  // namespace megatron
