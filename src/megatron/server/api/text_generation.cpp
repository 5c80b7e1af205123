// Megatron-LM's text generation server: PUT /api of run_text_generation_server.py.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/input_ids.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/server/api/api_routes.h"
#include "megatron/server/api/json_handler.h"
#include "megatron/server/api/served_model.h"
#include "megatron/server/generation_job.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxPrompts = 128;

/// Members with their names in read_completion(), which knows their bounds.
constexpr std::pair<const char*, const char*> kSampling[] = {{"tokens_to_generate", "max_tokens"},
                                                             {"temperature", "temperature"},
                                                             {"top_k", "top_k"},
                                                             {"top_p", "top_p"},
                                                             {"random_seed", "seed"},
                                                             {"beam_width", "num_beams"},
                                                             {"beam_width", "n"},
                                                             {"length_penalty", "length_penalty"},
                                                             {"stop_token", "termination_id"}};

/// Returns the request as one for completions.
CompletionRequest read_text_generation(const JsonCursor& body) {
  body.allow_only({"prompts", "tokens_to_generate", "logprobs", "temperature", "top_k", "top_p",
                   "top_p_decay", "top_p_bound", "add_BOS", "stop_on_double_eol", "stop_on_eol",
                   "prevent_newline_after_colon", "random_seed", "no_log", "beam_width",
                   "length_penalty", "stop_token"});
  const auto flag = [&](const char* name) {
    const auto value = body.find_given(name);
    return value && value->boolean();
  };
  const auto refuse = [&](bool is_wrong, const char* name, const char* why, const char* fix) {
    if (is_wrong) throw UserError({body[name].name(), why, fix});
  };
  const auto prompts = body["prompts"].elements();
  refuse(prompts.empty() || prompts.size() > kMaxPrompts, "prompts", "wrong number of prompts",
         "give 1 to 128");
  const bool adds_bos = flag("add_BOS"), has_logprobs = flag("logprobs");
  flag("no_log");  // the access log has no texts
  Json sampling{{"prompt", ""}, {"max_tokens", 64}, {"stop", Json::array()}, {"echo", true}};
  for (const auto& [name, own] : kSampling)
    if (const auto value = body.find_given(name)) sampling[own] = **value;
  if (sampling.value("top_p", Json()) == 0) sampling.erase("top_p");  // Megatron's "all"
  if (has_logprobs) sampling["logprobs"] = 0;
  if (flag("stop_on_eol")) sampling["stop"].push_back("\n");
  if (flag("stop_on_double_eol")) sampling["stop"].push_back("\n\n");
  CompletionRequest read = read_completion(JsonCursor(std::move(sampling), body.place()));
  read.add_special_tokens = adds_bos;
  read.prompts.clear();
  for (const JsonCursor& prompt : prompts) read.prompts.emplace_back(prompt.text());

  for (const char* name : {"top_p_decay", "top_p_bound"}) {
    const auto value = body.find_given(name);
    refuse(value && value->number() != 0, name, "is not in this version", "leave it out");
  }
  refuse(flag("prevent_newline_after_colon"), "prevent_newline_after_colon",
         "is not in this version", "leave it out");
  const auto seed = body.find_given("random_seed");
  refuse(seed && seed->integer() < 0, "random_seed", "is negative", "give at least 0");
  refuse(!adds_bos && std::ranges::count(read.prompts, CompletionPrompt("")) > 0, "prompts",
         "an empty prompt", "give \"add_BOS\": true");
  refuse(read.params.top_k > 0 && read.params.top_p > 0, "top_p", "has no meaning with 'top_k'",
         "leave one of them out");
  refuse(read.params.max_new_tokens == 0 && !has_logprobs, "tokens_to_generate",
         "0 without 'logprobs' asks for nothing", "give at least 1");
  refuse(body.find_given("beam_width") && (read.params.num_beams < 2 || prompts.size() > 1),
         "beam_width", "is for one prompt and at least 2 beams", "change one of them");
  return read;
}

std::vector<std::int64_t> ids_of(const Tokenizer& tokenizer, const CompletionPrompt& prompt,
                                 bool adds_bos) {
  std::vector<std::int64_t> ids = completion_ids(prompt, tokenizer, "field 'prompts'");
  const std::int64_t begin = adds_bos ? prompt_ids(tokenizer, "", "'add_BOS'").front() : 0;
  if (adds_bos && ids.front() != begin) ids.insert(ids.begin(), begin);
  return ids;
}

JsonText answer_of(const Tokenizer& tokenizer, const CompletionRequest& request,
                   const std::vector<PromptResult>& results) {
  JsonText texts, segments, tokens, logprobs, scores;
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (const Generation& generation : results[i].texts) {
      std::vector<std::int64_t> ids = results[i].ids;
      std::vector<std::string> pieces = token_texts(tokenizer, {}, ids);
      const std::vector<std::string> added = token_texts(tokenizer, ids, generation.ids);
      std::string text = std::accumulate(added.begin(), added.end(), std::string());
      text.resize(text.size() - std::min(text.size(), generation.num_cut_bytes));
      texts.push_back(std::get<std::string>(request.prompts[i]) + text);
      pieces.insert(pieces.end(), added.begin(), added.end());
      segments.push_back(pieces);
      ids.insert(ids.end(), generation.ids.begin(), generation.ids.end());
      tokens.push_back(ids);
      JsonText own = JsonText::array();
      for (const auto* part : {&generation.prompt_tokens, &generation.tokens})
        for (const SampledToken& token : *part) own.push_back(token.logprob);
      logprobs.push_back(std::move(own));
      scores.push_back(generation.score);
    }
  }
  JsonText answer{{"text", texts}, {"segments", segments}, {"tokens", tokens}};
  if (request.params.num_beams > 1)
    answer["scores"] = scores;
  else
    answer["logprobs"] = request.params.return_log_probs ? logprobs : JsonText();
  return answer;
}

/// Sends an error in OpenAI's form, with the member that Megatron-LM's client prints.
void send_failure(HttpReply& reply, const std::exception_ptr& error) {
  const ErrorReply told = error_of(error);
  JsonText body = error_json(told);
  body["message"] = told.message;
  reply.send(told.status, body.dump());
}

void generate(const ServedModel& model, const HttpRequest& http, HttpReply reply) {
  try {
    if (model.tokenizer.has_encoder())
      throw UserError({"model '" + model.name + "'",
                       "it has an encoder and a decoder, and this API continues prompts",
                       "use /v1/completions"});
    const auto request =
        std::make_shared<const CompletionRequest>(read_text_generation(body_of(http)));
    const SamplingParams& params = request->params;
    check_sizes(model,
                std::ssize(request->prompts) * std::max(params.num_samples(), params.num_beams),
                request->prompts);
    const Tokenizer& tokenizer = *model.tokenizer.tokenizer;
    std::vector<std::vector<std::int64_t>> prompts;
    for (const CompletionPrompt& prompt : request->prompts)
      prompts.push_back(ids_of(tokenizer, prompt, request->add_special_tokens));
    start_generation(
        model, std::move(prompts), params, {.has_seed = request->has_seed}, reply,
        {.on_end =
             [reply, request, &tokenizer](const std::vector<PromptResult>& results,
                                          const JobStats& /*stats*/) mutable {
               reply.send(200, answer_of(tokenizer, *request, results).dump());
             },
         .on_error =
             [reply](const std::exception_ptr& error) mutable { send_failure(reply, error); }});
  } catch (const UserError&) {
    send_failure(reply, std::current_exception());
  }
}

}  // namespace

std::vector<ApiRoute> text_generation_routes(const ServedModel& model) {
  const HttpHandler handler = [&model](const HttpRequest& request, HttpReply reply) {
    generate(model, request, std::move(reply));
  };
  return {{"PUT", "/api", handler}, {"POST", "/api", handler}};
}

}  // namespace megatron
