// Patterns of words: hand-written scanners against the same pattern as a regular expression. The
// first byte of the input chooses the pattern, the rest is split.
#include "megatron/tokenizers/word_splitter.h"

#include <algorithm>
#include <vector>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/tokenizers/patterns.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::fuzz {
namespace {

struct Pair {
  WordSplitter scanner, regex;
};

std::vector<Pair> all_pairs() {
  std::vector<Pair> pairs;
  const auto add = [&](std::string_view pattern, RegexDialect dialect) {
    const std::string text(pattern);
    pairs.push_back(
        {WordSplitter(text, dialect, text), WordSplitter("(?:" + text + ")", dialect, text)});
    require(pairs.back().scanner.is_scanner() && !pairs.back().regex.is_scanner(), text);
  };
  using namespace patterns;
  for (const std::string_view pattern : {kGpt2, kCl100kInJson, kLlama3, kQwen, kTekken})
    add(pattern, RegexDialect::oniguruma);
  for (const std::string_view pattern : {kR50kBase, kCl100kBase, kO200kBase, kTekken, kMegatronV1})
    add(pattern, RegexDialect::rust);
  return pairs;
}

std::vector<Span> words(const WordSplitter& splitter, std::string_view text) {
  std::vector<Span> found;
  splitter.split(text, [&](std::span<const Span> some) {
    found.insert(found.end(), some.begin(), some.end());
  });
  return found;
}

}  // namespace

void parse_word_splitter(std::string_view input) {
  static const std::vector<Pair> pairs = all_pairs();
  if (input.empty()) return;
  const Pair& pair = pairs[static_cast<unsigned char>(input.front()) % pairs.size()];
  std::string_view text = input.substr(1);
  const auto replaced = replace_invalid_utf8(text);
  if (replaced) text = *replaced;
  const auto same = [](const Span& a, const Span& b) {
    return a.begin == b.begin && a.end == b.end;
  };
  require(std::ranges::equal(words(pair.scanner, text), words(pair.regex, text), same),
          "the scanner and the regular expression split differently");
}

}  // namespace megatron::fuzz
