// Texts under constraints: of samplers, and of an engine with samples, beams and drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "inference/byte_pieces.h"
#include "inference/successor_model.h"
#include "megatron/inference/engine.h"
#include "megatron/inference/messages.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<std::int64_t>;
using Kind = OutputConstraint::Kind;

constexpr std::int64_t kEnd = 256, kVocabulary = 262;  // the last ids are no tokens

/// Tokens of all bytes, and 256 without a text, then three longer ones.
const BytePieces& tokenizer() {
  static const BytePieces pieces = [] {
    std::vector<std::string> all;
    for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
    for (const char* text : {"", "ab", "{\"", "\": "}) all.emplace_back(text);
    return BytePieces(std::move(all));
  }();
  return pieces;
}

std::string text_of(const Generation& generation) {
  std::string text;
  for (const std::int64_t id : generation.ids)
    text += tokenizer().token(static_cast<std::int32_t>(id));
  return text;
}

std::vector<Generation> generate(const TextRequest& request,
                                 const SpeculativeConfig& speculative = {}) {
  SuccessorModel model(kVocabulary, 3);
  Engine engine(model, {.tokenizer = &tokenizer(), .speculation = {.config = speculative}});
  engine.add_request(request);
  std::vector<Generation> texts;
  while (!engine.is_idle())
    for (Update& update : engine.step()) {
      EXPECT_FALSE(update.error);
      take_finished(update, texts);
    }
  return texts;
}

const std::vector<OutputConstraint> kConstraints{
    {Kind::regex, {"(ab|[x-z]{2}){3,20}"}},
    {Kind::choice, {"abab", "yes", "no"}},
    {Kind::json_schema, {R"({"properties": {"a": {"type": "boolean"}, "b": {"enum": ["ab", null]}},
          "required": ["a"]})"}}};

void expect_fit(const Generation& generation, const OutputConstraint& constraint) {
  GrammarCache cache(tokenizer());
  EXPECT_EQ(generation.finish_reason, FinishReason::stop);
  EXPECT_TRUE(cache.get(constraint)->accepts(text_of(generation))) << text_of(generation);
}

TEST(ConstrainedText, FitsWithEveryOption) {
  for (const OutputConstraint& constraint : kConstraints) {
    const SamplingParams sampled{.top_p = 0.95,
                                 .repetition_penalty = 1.2,
                                 .logit_bias = {{'q', 100}, {kEnd, 50}},
                                 .max_new_tokens = 80,
                                 .stop_token_ids = {kEnd},
                                 .n = 4,
                                 .best_of = 6,
                                 .constraint = constraint};
    for (const Generation& text : generate({.prompt = {'q'}, .params = sampled}))
      expect_fit(text, constraint);
    SamplingParams beams = sampled;
    beams.best_of = 0;
    beams.n = 2;
    beams.num_beams = 3;
    for (const Generation& text : generate({.prompt = {'q'}, .params = beams}))
      expect_fit(text, constraint);
    SamplingParams endless = sampled;
    endless.stop_token_ids.clear();
    if (constraint.kind != Kind::regex)  // the text ends where nothing more fits
      for (const Generation& text : generate({.prompt = {'q'}, .params = endless}))
        expect_fit(text, constraint);
  }
}

TEST(ConstrainedText, DraftsDoNotChangeIt) {
  const SpeculativeConfig ngram{.num_speculative_tokens = 3,
                                .speculative_method = SpeculativeMethod::ngram};
  for (const OutputConstraint& constraint : kConstraints) {
    const SamplingParams params{.temperature = 2,
                                .max_new_tokens = 60,
                                .stop_token_ids = {kEnd},
                                .n = 3,
                                .constraint = constraint};
    const TextRequest request{.prompt = {'a', 'b', 'a', 'b', 'x', 'a'}, .params = params};
    const auto plain = generate(request), drafted = generate(request, ngram);
    for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(plain[i].ids, drafted.at(i).ids);
  }
}

TEST(ConstrainedText, MistakesAreErrorsOfTheRequest) {
  SuccessorModel model(kVocabulary);
  Engine engine(model, {.tokenizer = &tokenizer()}), bare(model);
  const auto refusal = [](Engine& to, const SamplingParams& params) {
    return message_of([&] { to.add_request({.prompt = {1}, .params = params}); });
  };
  EXPECT_THAT(refusal(engine, {.constraint = {Kind::regex, {"(a"}}}), HasSubstr("position"));
  EXPECT_THAT(refusal(engine, {.constraint = {Kind::json_schema, {R"({"not": {}})"}}}),
              HasSubstr("'not'"));
  EXPECT_THAT(refusal(engine, {.constraint = {Kind::choice, {}}}), HasSubstr("no text fits"));
  EXPECT_THAT(refusal(engine, {.stop_token_ids = {'a'}, .constraint = {Kind::regex, {"b"}}}),
              HasSubstr("end token 97"));
  EXPECT_THAT(refusal(engine, {.num_beams = 2, .constraint = {Kind::regex, {"b"}}}),
              HasSubstr("--num-beams"));
  EXPECT_THAT(refusal(engine, {.allowed_token_ids = {kVocabulary}}),
              HasSubstr("--allowed-token-ids"));
  EXPECT_THAT(refusal(bare, {.constraint = {Kind::regex, {"b"}}}), HasSubstr("no tokenizer"));
  EXPECT_TRUE(engine.is_idle());
}

// Each `[` multiplies the ways to read the text by eight.
TEST(ConstrainedText, ThatIsTooComplexEndsItsRequestAlone) {
  std::string schema = R"({"anyOf": [)";
  for (int most = 1; most <= 8; ++most)
    schema += (most > 1 ? "," : "") + std::string(R"({"items": {"$ref": "#"}, "maxItems": )") +
              std::to_string(most) + "}";
  const SamplingParams plain{.logit_bias = {{'[', 100}},
                             .max_new_tokens = 80,
                             .stop_token_ids = {kEnd},
                             .constraint = {Kind::json_schema, {schema + "]}"}}};
  SamplingParams samples = plain, beams = plain, endless = plain;
  samples.n = 3;
  beams.num_beams = 3;
  endless.stop_token_ids.clear();
  for (const SamplingParams& params : {plain, samples, beams, endless})
    for (const std::int64_t num_drafts : {0, 3}) {
      SuccessorModel model(kVocabulary, 3);
      Engine engine(model,
                    {.tokenizer = &tokenizer(),
                     .speculation = {.config = {.num_speculative_tokens = num_drafts,
                                                .speculative_method = SpeculativeMethod::ngram}}});
      const RequestId complex = engine.add_request({.prompt = {'[', '[', '['}, .params = params});
      const RequestId other =
          engine.add_request({.prompt = {'q'}, .params = {.max_new_tokens = 9}});
      std::vector<Generation> texts;
      std::vector<std::string> errors;
      while (!engine.is_idle())
        for (Update& update : engine.step()) {
          if (update.error) {
            EXPECT_EQ(update.request, complex);
            errors.push_back(message_of([&] { std::rethrow_exception(update.error); }));
          } else if (update.request == other) {
            take_finished(update, texts);
          }
        }
      EXPECT_THAT(errors, ElementsAre(HasSubstr("more than 10000 ways")));
      ASSERT_EQ(texts.size(), 1u);
      EXPECT_EQ(texts[0].ids.size(), 9u);
    }
}

TEST(ConstrainedText, EndsBeforeTheMinimumWhereNothingMoreFits) {
  const SamplingParams params{
      .min_new_tokens = 5, .stop_token_ids = {kEnd}, .constraint = {Kind::choice, {"no"}}};
  const auto texts = generate({.prompt = {1}, .params = params});
  EXPECT_EQ(text_of(texts.front()), "no");
  EXPECT_EQ(texts.front().finish_reason, FinishReason::stop);
}

TEST(ConstrainedText, BeginsBehindThinkingThatHasABudget) {
  const SamplingParams params{.temperature = 0,
                              .stop_token_ids = {kEnd},
                              .constraint = {Kind::regex, {"yes|no"}},
                              .constraint_starts_after = {'<', '/'},
                              .thinking_budget = 3,
                              .end_thinking_ids = {'<', '/'}};
  // The model counts: "abc", then the end of thinking is forced.
  EXPECT_THAT(text_of(generate({.prompt = {'`'}, .params = params}).front()),
              testing::AnyOf("abc</yes", "abc</no"));
  // What the model has said of it is not said again: '<' follows ';'.
  SamplingParams begun = params;
  begun.thinking_budget = 1;
  EXPECT_THAT(text_of(generate({.prompt = {';'}, .params = begun}).front()),
              testing::AnyOf("</yes", "</no"));
  // End tokens have to wait, too.
  SamplingParams eager = params;
  eager.logit_bias = {{kEnd, 100}};
  EXPECT_THAT(text_of(generate({.prompt = {'`'}, .params = eager}).front()), HasSubstr("</"));
  SamplingParams free = params;
  free.constraint = {};
  free.max_new_tokens = 7;
  EXPECT_EQ(text_of(generate({.prompt = {'`'}, .params = free}).front()), "abc</01");
}

TEST(ConstrainedText, HasAllowedTokensOnly) {
  const SamplingParams params{.max_new_tokens = 30, .allowed_token_ids = {'a', 'z'}};
  for (const char c : text_of(generate({.prompt = {1}, .params = params}).front()))
    EXPECT_TRUE(c == 'a' || c == 'z');
}

TEST(ConstrainedText, TravelsToOtherRanks) {
  const TextRequest request{.prompt = {1},
                            .params = {.constraint = {Kind::choice, {"a", "b"}},
                                       .constraint_starts_after = {5},
                                       .allowed_token_ids = {6, 7},
                                       .thinking_budget = 8,
                                       .end_thinking_ids = {9}}};
  const SamplingParams read = from_bytes<TextRequest>(to_bytes(request)).params;
  EXPECT_EQ(read.constraint.kind, Kind::choice);
  EXPECT_THAT(read.constraint.texts, ElementsAre("a", "b"));
  EXPECT_THAT(read.constraint_starts_after, ElementsAre(5));
  EXPECT_THAT(read.allowed_token_ids, ElementsAre(6, 7));
  EXPECT_EQ(read.thinking_budget, 8);
  EXPECT_THAT(read.end_thinking_ids, ElementsAre(9));
}

}  // namespace
}  // namespace megatron
