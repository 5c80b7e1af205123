#include "megatron/config/inference_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/base/words.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Args = std::vector<std::string>;

GenerateOptions options_of(const Args& more) {
  Args args{"--load", "folder", "--prompt", "text"};
  args.insert(args.end(), more.begin(), more.end());
  return read_generate_options(args);
}

std::string mistake_of(const Args& more) {
  return message_of([&] { options_of(more); });
}

TEST(GenerateOptions, ConstraintsHaveTheNamesOfVllm) {
  using Kind = OutputConstraint::Kind;
  const OutputConstraint choice =
      options_of({"--guided-choice", "yes", "--guided-choice", "no"}).sampling.constraint;
  EXPECT_EQ(choice.kind, Kind::choice);
  EXPECT_THAT(choice.texts, ElementsAre("yes", "no"));
  EXPECT_THAT(options_of({"--guided-regex", "a|b"}).sampling.constraint.texts, ElementsAre("a|b"));
  const OutputConstraint json =
      options_of({"--guided-json", R"({"type": "null"})"}).sampling.constraint;
  EXPECT_EQ(json.kind, Kind::json_schema);
  EXPECT_THAT(json.texts, ElementsAre(R"({"type": "null"})"));
  EXPECT_THAT(options_of({"--allowed-token-ids", "1", "2"}).sampling.allowed_token_ids,
              ElementsAre(1, 2));
  EXPECT_THAT(mistake_of({"--guided-json", "missing.json"}), HasSubstr("missing.json"));
  EXPECT_THAT(mistake_of({"--guided-regex", "a", "--guided-choice", "a"}),
              HasSubstr("the output has another constraint already"));
  EXPECT_THAT(mistake_of({"--guided-regex", "a", "--allowed-token-ids", "1"}),
              HasSubstr("--allowed-token-ids"));
}

TEST(GenerateOptions, DraftsHaveTheFlagsOfMegatronAndVllm) {
  EXPECT_EQ(options_of({"--num-speculative-tokens", "3"}).speculative.method(),
            SpeculativeMethod::mtp);
  EXPECT_EQ(options_of({"--num-speculative-tokens", "3", "--speculative-model", "small"})
                .speculative.method(),
            SpeculativeMethod::draft_model);
  const SpeculativeConfig ngram =
      options_of({"--num-speculative-tokens", "3", "--speculative-method", "ngram",
                  "--ngram-prompt-lookup-max", "6"})
          .speculative;
  EXPECT_EQ(ngram.method(), SpeculativeMethod::ngram);
  EXPECT_EQ(ngram.num_speculative_tokens, 3);
  EXPECT_EQ(ngram.ngram_prompt_lookup_max, 6);
  EXPECT_THAT(mistake_of({"--speculative-model", "small"}),
              testing::HasSubstr("give --num-speculative-tokens N"));
}

TEST(GenerateOptions, SamplingHasItsOwnFlags) {
  const SamplingParams params =
      options_of({"--min-p", "0.1", "--logit-bias", "3:-1.5,7:100", "--stop", "a b", "--stop", "c",
                  "--n", "2", "--best-of", "5", "--ignore-eos"})
          .sampling;
  EXPECT_EQ(params.min_p, 0.1);
  ASSERT_EQ(params.logit_bias.size(), 2u);
  EXPECT_EQ(params.logit_bias[0].id, 3);
  EXPECT_EQ(params.logit_bias[0].bias, -1.5);
  EXPECT_EQ(params.logit_bias[1].bias, 100);
  EXPECT_THAT(params.stop, ElementsAre("a b", "c"));
  EXPECT_EQ(params.num_samples(), 5);
  EXPECT_TRUE(params.needs_logprobs());
  EXPECT_TRUE(params.ignore_eos);
}

TEST(GenerateOptions, MegatronsSpellingsAreRead) {
  const SamplingParams params =
      options_of({"--stop-words", "a", "b c", "--top-n-logprobs", "3", "--return-log-probs",
                  "--num-tokens-to-generate", "9", "--json"})
          .sampling;
  EXPECT_THAT(params.stop, ElementsAre("a", "b c"));
  EXPECT_EQ(params.logprobs, 3);
  EXPECT_TRUE(params.prompt_logprobs);
  EXPECT_EQ(params.max_new_tokens, 9);
  const Args skips{"--return-log-probs", "--skip-prompt-log-probs", "--json"};
  EXPECT_FALSE(options_of(skips).sampling.prompt_logprobs);
  EXPECT_EQ(mistake_of({"--top-n-logprobs", "0"}), "no error");
}

TEST(GenerateOptions, TheEngineHasMegatronsFlags) {
  const EngineSettings settings =
      options_of({"--inference-dynamic-batching", "--inference-max-requests", "8",
                  "--inference-dynamic-batching-max-tokens", "512", "--inference-max-seq-length",
                  "4096", "--inference-dynamic-batching-buffer-size-gb", "0.5",
                  "--no-inference-dynamic-batching-prefix-caching", "--batch-invariant-mode"})
          .engine;
  EXPECT_EQ(settings.max_requests, 8);
  EXPECT_EQ(settings.max_tokens, 512);
  EXPECT_EQ(settings.max_seq_length, 4096);
  EXPECT_EQ(settings.buffer_size_gb, 0.5);
  EXPECT_TRUE(settings.chunked_prefill);
  EXPECT_FALSE(settings.prefix_caching);
  EXPECT_TRUE(settings.batch_invariant_mode);
  EXPECT_FALSE(options_of({"--no-enable-chunked-prefill"}).engine.chunked_prefill);
  EXPECT_THAT(mistake_of({"--inference-dynamic-batching-buffer-size-gb", "0"}),
              HasSubstr("--inference-dynamic-batching-buffer-size-gb: must be above 0"));
}

TEST(GenerateOptions, MistakesNameTheirFlags) {
  EXPECT_THAT(mistake_of({"--logit-bias", "3=1", "--typical-p", "2"}),
              AllOf(HasSubstr("--logit-bias"), HasSubstr("--typical-p")));
  EXPECT_THAT(mistake_of({"--logit-bias", "3:101"}), HasSubstr("out of range"));
  EXPECT_THAT(mistake_of({"--n", "3", "--best-of", "2", "--min-new-tokens", "129"}),
              AllOf(HasSubstr("--best-of"), HasSubstr("--min-new-tokens")));
  EXPECT_THAT(mistake_of({"--num-beams", "2", "--n", "3", "--stop", "a"}),
              AllOf(HasSubstr("--n: 3"), HasSubstr("--stop")));
  EXPECT_THAT(mistake_of({"--logprobs", "2"}), HasSubstr("add --json"));
  EXPECT_THAT(mistake_of({"--repetition-penalty", "1e39", "--length-penalty", "-1e39"}),
              AllOf(HasSubstr("--repetition-penalty: must be at most 1e+30, got 1e39"),
                    HasSubstr("--length-penalty: must be at least -30, got -1e39")));
  EXPECT_THAT(mistake_of({"--repetition-penalty", "0"}), HasSubstr("must be at least 1e-30"));
}

TEST(GenerateOptions, WhatBeamSearchDoesNotReadIsNoted) {
  const Notes notes = options_of({"--num-beams", "2", "--top-k", "5"}).parsed.notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes.begin()->second, ElementsAre("--top-k"));
  EXPECT_EQ(options_of({"--length-penalty", "2"}).parsed.notes.size(), 1u);
}

TEST(SamplingParams, EndTokensAreOfTheModelUnlessOneIsNamed) {
  const std::vector<std::int64_t> of_model{7, 8};
  SamplingParams params{.stop_token_ids = {1}};
  params.add_end_tokens(of_model);
  EXPECT_THAT(params.stop_token_ids, ElementsAre(1, 7, 8));
  SamplingParams named{.termination_id = 5};
  named.add_end_tokens(of_model);
  EXPECT_THAT(named.stop_token_ids, ElementsAre(5));
  SamplingParams ignoring{.ignore_eos = true};
  ignoring.add_end_tokens(of_model);
  EXPECT_TRUE(ignoring.stop_token_ids.empty());
}

TEST(InferenceOptions, ServeTakesTheFlagsOfOtherServers) {
  const ServeOptions options = read_serve_options(
      split_words("--load model --port 0 --api-key a --api-key b --served-model-name m n "
                  "--max-model-len 4096 --max-num-seqs 8 --max-num-batched-tokens 64 "
                  "--disable-log-requests --chat-template t.jinja --uvicorn-log-level info "
                  "--enable-auto-tool-choice --pooling-type mean"),
      1);
  EXPECT_EQ(options.server.port, 0);
  EXPECT_EQ(options.server.pooling_type, "mean");
  EXPECT_THAT(options.server.api_key, ElementsAre("a", "b"));
  EXPECT_THAT(options.server.served_model_name, ElementsAre("m", "n"));
  EXPECT_EQ(options.engine.max_seq_length, 4096);
  EXPECT_EQ(options.engine.max_requests, 8);
  EXPECT_EQ(options.engine.max_tokens, 64);
  EXPECT_TRUE(options.server.disable_access_log);
  EXPECT_EQ(options.tokenizer.chat_template, "t.jinja");
  EXPECT_THAT(notes_text(options.parsed.notes),
              HasSubstr("--uvicorn-log-level, --enable-auto-tool-choice: there is one way here"));
}

TEST(InferenceOptions, ServeTakesKeysOfTheEnvironmentAndNoEmptyOnes) {
  const std::vector<std::string> args = split_words("--load model"),
                                 with_key = split_words("--load model --api-key a");
  ::setenv("MEGATRON_API_KEY", "b", 1);
  EXPECT_THAT(read_serve_options(args, 1).server.api_key, ElementsAre("b"));
  EXPECT_THAT(read_serve_options(with_key, 1).server.api_key, ElementsAre("a"));
  ::setenv("MEGATRON_API_KEY", "", 1);
  EXPECT_THAT(message_of([&] { read_serve_options(args, 1); }), HasSubstr("MEGATRON_API_KEY"));
  ::unsetenv("MEGATRON_API_KEY");
  EXPECT_THAT(message_of([] {
                read_serve_options(std::vector<std::string>{"--load", "model", "--api-key", ""}, 1);
              }),
              HasSubstr("--api-key (MEGATRON_API_KEY): a key is empty"));
}

TEST(SamplingParams, TokensAreOfTheVocabulary) {
  const auto message = [](const SamplingParams& params) {
    return message_of([&] { check_sampling_options(params, 50); });
  };
  const std::string fix = "the model's vocabulary has 50 tokens, with the ids 0 to 49";
  for (const auto& [params, text] : std::vector<std::pair<SamplingParams, std::string>>{
           {{.logit_bias = {{50, 1}}}, "--logit-bias: token id 50"},
           {{.stop_token_ids = {49, 50}}, "stop_token_ids: token id 50"},
           {{.termination_id = 50}, "--termination-id: token id 50"}})
    EXPECT_THAT(message(params), AllOf(HasSubstr(text), HasSubstr(fix)));
  EXPECT_THAT(message({.stop_token_ids = {-1}}), HasSubstr("stop_token_ids: token id -1"));
  EXPECT_NO_THROW(check_sampling_options(
      {.logit_bias = {{49, 1}}, .stop_token_ids = {0, 49}, .termination_id = 49}, 50));
}

TEST(InferenceOptions, ScoreAndEvaluateNoteThatTheyCacheNoLatents) {
  const std::vector<std::string> args{"--load", "model", "--cache-mla-latents"};
  const ScoreOptions score = read_score_options(args, 1);
  EXPECT_FALSE(score.cache_mla_latents);
  EXPECT_THAT(notes_text(score.parsed.notes),
              HasSubstr("score caches keys and values, not latents"));
  std::vector<std::string> with_task = args;
  with_task.insert(with_task.end(), {"--task", "a.jsonl"});
  const EvaluateOptions evaluate = read_evaluate_options(with_task, 1);
  EXPECT_FALSE(evaluate.cache_mla_latents);
  EXPECT_THAT(notes_text(evaluate.parsed.notes),
              HasSubstr("evaluate caches keys and values, not latents"));
  std::vector<std::string> prompted = args;
  prompted.insert(prompted.end(), {"--prompt", "a"});
  const GenerateOptions generate = read_generate_options(prompted, 1);
  EXPECT_TRUE(generate.cache_mla_latents);
  EXPECT_EQ(notes_text(generate.parsed.notes), "");
}

}  // namespace
}  // namespace megatron
