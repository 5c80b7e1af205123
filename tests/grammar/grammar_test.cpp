// Masks against their definition: a token is allowed if the text with it begins one that fits.
#include "megatron/grammar/grammar.h"

#include <gtest/gtest.h>

#include "grammar/grammar_texts.h"
#include "inference/byte_pieces.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using Kind = OutputConstraint::Kind;

TEST(Grammar, MasksAreExact) {
  std::mt19937 random(7);
  std::vector<std::string> more;
  constexpr std::string_view kBytes = "{}[]\",: abx1-\\\n";
  for (int i = 0; i < 800; ++i) {
    std::string& text = more.emplace_back();
    for (std::uint32_t k = 2 + random() % 5; k-- > 0;) text += kBytes[random() % kBytes.size()];
  }
  const auto tokens = byte_tokens(more);
  const std::vector<OutputConstraint> constraints{
      {Kind::json_object, {}},
      {Kind::regex, {"(a|ab)(1|x)*[^b]{2,3}"}},
      {Kind::choice, {"a", "ab", "1 x", ""}},
      {Kind::json_schema,
       {R"({"properties": {"a": {"type": "array", "items": {"$ref": "#"}}, "ab": {"type": "string"},
            "x": {"type": "integer"}}, "required": ["ab"]})"}}};
  for (const OutputConstraint& constraint : constraints) {
    Grammar grammar(constraint, tokens);
    for (int i = 0; i < 12; ++i) {
      Grammar::State state = grammar.begin();
      for (int k = 0; k < 25; ++k) {
        const auto mask = grammar.mask(state);
        std::vector<std::int64_t> allowed;
        for (std::int64_t id = 0; id < std::ssize(more) + 256; ++id) {
          // With all bytes as tokens, every beginning of a text can be completed.
          const bool fits = grammar.advance(state, id) != TextMatcher::kNone;
          ASSERT_EQ(mask->allows(id), fits) << grammar.tokens().text(id);
          if (fits) allowed.push_back(id);
        }
        EXPECT_EQ(mask->has_tokens, !allowed.empty());
        if (allowed.empty()) break;
        state = grammar.advance(state, allowed[random() % allowed.size()]);
      }
    }
  }
}

TEST(Grammar, NeverLeadsWhereTheTokensCannotGoOn) {
  // Without the byte 'b', "ab" is written by one token only, and "ac" by none.
  const auto tokens = std::make_shared<const TokenTrie>(std::vector<std::string>{"a", "ab", "x"});
  Grammar grammar({Kind::choice, {"ab", "ax", "ac"}}, tokens);
  const auto mask = grammar.mask(grammar.begin());
  EXPECT_TRUE(mask->allows(0));
  EXPECT_TRUE(mask->allows(1));
  EXPECT_FALSE(mask->allows(2));
  EXPECT_EQ(message_of([&] {
              Grammar({Kind::choice, {"c"}}, tokens);
            }),
            message_of([&] {
              Grammar({Kind::choice, {"cc"}}, tokens);
            }));
}

TEST(Grammar, MasksOfLongTextsAreExact) {  // which have more states than masks are kept
  Grammar grammar({Kind::regex, {"(ab){1500}"}}, byte_tokens());
  Grammar::State state = grammar.begin();
  for (int i = 0; i < 3000; ++i) {
    const auto mask = grammar.mask(state);
    const char next = i % 2 == 0 ? 'a' : 'b', other = i % 2 == 0 ? 'b' : 'a';
    ASSERT_TRUE(mask->allows(next)) << i;
    ASSERT_FALSE(mask->allows(other)) << i;
    state = grammar.advance(state, next);
  }
  EXPECT_TRUE(grammar.mask(state)->is_complete);
}

TEST(GrammarCache, SharesGrammarsByText) {
  const BytePieces tokenizer({"a", "b", ""});
  GrammarCache cache(tokenizer);
  const auto first = cache.get({Kind::regex, {"a+"}});
  EXPECT_EQ(cache.get({Kind::regex, {"a+"}}), first);
  EXPECT_NE(cache.get({Kind::choice, {"a+", "a"}}), first);
  EXPECT_EQ(cache.get({}), nullptr);
}

}  // namespace
}  // namespace megatron
