#include "megatron/inference/completions/completion_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int64_t>;

CompletionRequest read(const std::string& body) {
  return read_completion(JsonCursor(parse_json(body, "body"), "body"));
}

TEST(CompletionRequest, DefaultsAreThoseOfOpenAI) {
  const CompletionRequest request = read(R"({"model": "m", "prompt": "a b", "user": "u",
      "stop": null, "logprobs": null, "seed": null})");
  EXPECT_EQ(request.model, "m");
  EXPECT_THAT(request.prompts, ElementsAre(CompletionPrompt("a b")));
  const SamplingParams& params = request.params;
  EXPECT_EQ(params.max_new_tokens, 16);
  EXPECT_EQ(params.temperature, 1);
  EXPECT_EQ(params.num_samples(), 1);
  EXPECT_FALSE(params.needs_logprobs());
  EXPECT_TRUE(params.stop.empty());
  EXPECT_FALSE(request.echo || request.has_seed || request.stream);
}

TEST(CompletionRequest, ReadsEveryMember) {
  const CompletionRequest request = read(R"({"prompt": [1, 2], "max_tokens": 7, "min_tokens": 2,
      "temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "typical_p": 0.9, "n": 2,
      "best_of": 3, "logprobs": 0, "echo": true, "stop": ["x", "y"], "seed": 5,
      "stop_token_ids": [9], "logit_bias": {"3": -100, "4": 0.5}, "presence_penalty": 0.25,
      "frequency_penalty": -0.5, "repetition_penalty": 1.5, "ignore_eos": true, "stream": false,
      "return_routed_experts": true, "priority": -3, "prompt_logprobs": 4,
      "return_tokens_as_token_ids": true, "add_special_tokens": false,
      "skip_special_tokens": false, "include_stop_str_in_output": true, "bad_words": ["no"],
      "use_beam_search": false, "spaces_between_special_tokens": true, "request_id": "r"})");
  EXPECT_THAT(request.prompts, ElementsAre(CompletionPrompt(Ids{1, 2})));
  EXPECT_TRUE(request.echo);
  EXPECT_TRUE(request.has_seed);
  EXPECT_EQ(request.priority, -3);
  const SamplingParams& params = request.params;
  EXPECT_EQ(params.max_new_tokens, 7);
  EXPECT_EQ(params.min_new_tokens, 2);
  EXPECT_EQ(params.temperature, 0);
  EXPECT_EQ(params.top_p, 0.5);
  EXPECT_EQ(params.top_k, 0);
  EXPECT_EQ(params.min_p, 0.1);
  EXPECT_EQ(params.typical_p, 0.9);
  EXPECT_EQ(params.n, 2);
  EXPECT_EQ(params.best_of, 3);
  EXPECT_TRUE(params.return_log_probs);
  EXPECT_EQ(params.logprobs, 0);
  EXPECT_TRUE(params.prompt_logprobs);
  EXPECT_THAT(params.stop, ElementsAre("x", "y"));
  EXPECT_EQ(params.seed, 5);
  EXPECT_THAT(params.stop_token_ids, ElementsAre(9));
  ASSERT_EQ(params.logit_bias.size(), 2u);
  EXPECT_EQ(params.logit_bias[0].id, 3);
  EXPECT_EQ(params.logit_bias[0].bias, -100);
  EXPECT_EQ(params.logit_bias[1].bias, 0.5);
  EXPECT_EQ(params.presence_penalty, 0.25);
  EXPECT_EQ(params.frequency_penalty, -0.5);
  EXPECT_EQ(params.repetition_penalty, 1.5);
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_TRUE(params.return_routed_experts);
  EXPECT_EQ(params.prompt_best, 4);
  EXPECT_TRUE(request.tokens_as_ids);
  EXPECT_FALSE(request.add_special_tokens || params.skip_special_tokens);
  EXPECT_TRUE(params.include_stop);
  EXPECT_THAT(params.bad_words, ElementsAre("no"));
}

TEST(CompletionRequest, TruncatesThePromptOnTheLeft) {
  const CompletionRequest request = read(R"({"prompt": "a", "truncate_prompt_tokens": 2})");
  Ids longer{1, 2, 3}, shorter{1, 2};
  request.truncate(longer);
  request.truncate(shorter);
  EXPECT_EQ(longer, (Ids{2, 3}));
  EXPECT_EQ(shorter, (Ids{1, 2}));
}

TEST(CompletionRequest, RefusesOtherMembersOfVllmByName) {
  for (const std::string member :
       {R"("logits_processors": [])", R"("prompt_embeds": "")", R"("guided_grammar": "")",
        R"("cache_salt": "x")", R"("kv_transfer_params": {})", R"("vllm_xargs": {})",
        R"("use_beam_search": true)", R"("spaces_between_special_tokens": false)"})
    EXPECT_THAT(message_of([&] { read(R"({"prompt": "a", )" + member + "}"); }),
                HasSubstr("field '" + member.substr(1, member.find(':') - 2) +
                          "': is not in this version"));
}

TEST(CompletionRequest, TakesNegativeSeedsAsVllmDoes) {
  const CompletionRequest negative = read(R"({"prompt": "a", "seed": -5})");
  EXPECT_TRUE(negative.has_seed);
  EXPECT_GE(negative.params.seed, 0);
  EXPECT_NE(negative.params.seed, read(R"({"prompt": "a", "seed": -6})").params.seed);
  EXPECT_FALSE(read(R"({"prompt": "a", "seed": -1})").has_seed);
}

TEST(CompletionRequest, HasPromptsOfFourForms) {
  EXPECT_THAT(read(R"({"prompt": ["a", "b"]})").prompts,
              ElementsAre(CompletionPrompt("a"), CompletionPrompt("b")));
  EXPECT_THAT(read(R"({"prompt": [[1, 2], [3]]})").prompts,
              ElementsAre(CompletionPrompt(Ids{1, 2}), CompletionPrompt(Ids{3})));
  EXPECT_THAT(read(R"({"prompt": [1, 2]})").prompts, ElementsAre(CompletionPrompt(Ids{1, 2})));
  EXPECT_THAT(read(R"({"prompt": "", "stop": "x"})").params.stop, ElementsAre("x"));
}

TEST(CompletionRequest, ReadsConstraintsInTheFormsOfVllmAndOpenAI) {
  using Kind = OutputConstraint::Kind;
  const auto constraint = [](const std::string& members) {
    const std::string body = R"({"prompt": "a", )" + members + "}";
    return read_completion(JsonCursor(parse_json(body, "body"), "body"), body).params.constraint;
  };
  for (const auto& [members, kind, texts] :
       std::vector<std::tuple<std::string, Kind, std::vector<std::string>>>{
           {R"("guided_regex": "a+")", Kind::regex, {"a+"}},
           {R"("guided_choice": ["b", "a"])", Kind::choice, {"b", "a"}},
           {R"("guided_json": {"type": "object", "a": 1})",
            Kind::json_schema,
            {R"({"type":"object","a":1})"}},
           {R"("guided_json": "{\"type\": \"null\"}")", Kind::json_schema, {R"({"type": "null"})"}},
           {R"("structured_outputs": {"regex": null, "json": {"b": 1, "a": 2}})",
            Kind::json_schema,
            {R"({"b":1,"a":2})"}},
           {R"("structured_outputs": {"json_object": true})", Kind::json_object, {}},
           {R"("response_format": {"type": "text"})", Kind::none, {}},
           {R"("response_format": {"type": "json_object"})", Kind::json_object, {}},
           {R"("response_format": {"type": "json_schema", "json_schema": {"name": "n",
               "schema": {"type": "object", "a": 1}}})",
            Kind::json_schema,
            {R"({"type":"object","a":1})"}}}) {
    EXPECT_EQ(constraint(members).kind, kind) << members;
    EXPECT_EQ(constraint(members).texts, texts) << members;
  }
  EXPECT_THAT(read(R"({"prompt": "a", "allowed_token_ids": [3, 4]})").params.allowed_token_ids,
              ElementsAre(3, 4));
  EXPECT_THAT(message_of([] { read(R"({"prompt": "a", "allowed_token_ids": []})"); }),
              HasSubstr("'allowed_token_ids': is empty"));
}

TEST(CompletionRequest, ATopPOfZeroKeepsTheLikeliestToken) {
  const double top_p = read(R"({"prompt": "a", "top_p": 0})").params.top_p;
  EXPECT_GT(top_p, 0);
  EXPECT_LT(top_p, 1e-6);
}

TEST(CompletionRequest, MistakesNameTheMember) {
  for (const auto& [body, text] : std::vector<std::pair<std::string, std::string>>{
           {R"({})", "body: field 'prompt' is missing"},
           {R"({"prompt": []})", "field 'prompt': an empty list"},
           {R"({"prompt": [1, "a"]})", "prompt[1]"},
           {R"({"prompt": ["a", 1]})", "prompt[1]"},
           {R"({"prompt": {}})", "field 'prompt'"},
           {R"({"prompt": "a", "temperature": -1})",
            "body: field 'temperature': must be at least 0"},
           {R"({"prompt": "a", "temperature": "0.5"})", "field 'temperature'"},
           {R"({"prompt": "a", "max_tokens": 1.5})", "field 'max_tokens'"},
           {R"({"prompt": "a", "echo": 1})", "field 'echo'"},
           {R"({"prompt": "a", "logprobs": -1})", "field 'logprobs'"},
           {R"({"prompt": "a", "logit_bias": {"x": 1}})", "field 'logit_bias'"},
           {R"({"prompt": "a", "logit_bias": {"3": 101}})", "out of range"},
           {R"({"prompt": "a", "stop": ["x", ""]})", "an empty text ends every text"},
           {R"({"prompt": "a", "n": 3, "best_of": 2})", "give at least 'n', 3"},
           {R"({"prompt": "a", "n": 129})",
            "body: fields 'n', 'best_of' and 'num_beams': 129 texts of a prompt"},
           {R"({"prompt": "a", "guided_json": "/etc/hostname"})",
            "field 'guided_json': is no JSON schema"},
           {R"({"prompt": "a", "guided_regex": "a", "guided_choice": ["a"]})",
            "the output has another constraint already"},
           {R"({"prompt": "a", "structured_outputs": {"grammar": "a"}})", "field 'grammar'"},
           {R"({"prompt": "a", "response_format": {"type": "xml"}})", "'xml' is not known here"},
           {R"({"prompt": "a", "prompt_logprobs": -1})",
            "field 'prompt_logprobs': must be at least"},
           {R"({"prompt": "a", "prompt_logprobs": 0, "stream": true})",
            "body: field 'prompt_logprobs': has no meaning with 'stream'"},
           {R"({"prompt": "a", "suffix": "b"})", "field 'suffix': is not in this version"},
           {R"({"prompt": "a", "bad_words": [""]})", "bad_words: an empty text"},
           {R"({"prompt": "a", "truncate_prompt_tokens": 0})", "field 'truncate_prompt_tokens': 0"},
           {R"({"prompt": "a", "truncate_prompt_tokens": 2, "echo": true})",
            "field 'truncate_prompt_tokens': has no meaning with 'echo'"},
           {R"({"prompt": "a", "num_beams": 2, "stop": "b"})", "has no meaning with 'num_beams'"},
           {R"({"prompt": "a", "num_beams": 2, "return_routed_experts": true})",
            "return_routed_experts: has no meaning with 'num_beams'"},
           {R"({"prompt": "a", "max_token": 2})", "field 'max_token': is not known here"}})
    EXPECT_THAT(message_of([&, body = body] { read(body); }), HasSubstr(text)) << body;
}

TEST(CompletionRequest, ErrorsHaveTheFormOfOpenAI) {
  EXPECT_EQ(error_json(error_reply(UserError({"field 'n'", "0", "give 1"}))).dump(),
            R"({"error":{"message":"field 'n': 0; give 1","type":"invalid_request_error",)"
            R"("param":"n","code":null}})");
  EXPECT_EQ(error_json({404, "no", "model_not_found"}).dump(),
            R"({"error":{"message":"no","type":"invalid_request_error",)"
            R"("param":null,"code":"model_not_found"}})");
}

TEST(CompletionRequest, ErrorsNameTheirMember) {
  const auto member = [](const std::string& what) { return error_reply(UserError(what)).param; };
  EXPECT_EQ(member("request body: field 'seed' must be an integer, got \"one\""), "seed");
  EXPECT_EQ(member("request body: messages[0]: field 'role' is missing"), "messages[0].role");
  EXPECT_EQ(member("request body: --min-new-tokens"), "min_tokens");
  EXPECT_EQ(member("request body: fields 'n', 'best_of' and 'num_beams'"), "");
  EXPECT_EQ(member("request body: field 'queries' and 'text_1'"), "");
  EXPECT_EQ(member("the model has a context of 8 tokens"), "");
}

}  // namespace
}  // namespace megatron
