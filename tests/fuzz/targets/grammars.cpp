// Regular expressions, and JSON schemas. The first byte says which; the texts of some tokens follow
// the masks.
#include <memory>
#include <string>
#include <vector>

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/grammar/grammar.h"

namespace megatron::fuzz {
namespace {

std::shared_ptr<const TokenTrie> some_tokens() {
  std::vector<std::string> texts;
  for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  for (const char* text : {"{\"", "\":", "},", "]]", "true", "12", ", \""})
    texts.emplace_back(text);
  return std::make_shared<const TokenTrie>(std::move(texts));
}

}  // namespace

void parse_grammars(std::string_view input) {
  using enum OutputConstraint::Kind;
  static const std::shared_ptr<const TokenTrie> tokens = some_tokens();
  const bool is_schema = !input.empty() && input.front() % 2 != 0;
  const std::string text(input.substr(std::min<std::size_t>(input.size(), 1)));
  Grammar grammar({is_schema ? json_schema : regex, {text}}, tokens);
  Grammar::State state = grammar.begin();
  for (std::size_t i = 0; i < 40; ++i) {
    const std::shared_ptr<const TokenMask> mask = grammar.mask(state);
    require(mask->has_tokens || mask->is_complete, "a text has no end");
    if (!mask->has_tokens) return;
    std::int64_t id = i % 2 == 0 ? 263 : static_cast<unsigned char>(text[i % (text.size() + 1)]);
    while (!mask->allows(id)) id = (id + 1) % 263;
    state = grammar.advance(state, id);
    require(state != TextMatcher::kNone, "an allowed token does not fit");
  }
}

}  // namespace megatron::fuzz
