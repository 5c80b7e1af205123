// Megatron-LM's text generation server: PUT /api of run_text_generation_server.py.
#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <type_traits>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/input_ids.h"
#include "megatron/server/api/api_routes.h"
#include "megatron/server/api/json_handler.h"
#include "megatron/server/api/served_model.h"
#include "megatron/server/generation_job.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxPrompts = 128;

template <class T>
void read_number(const JsonCursor& body, const char* name, T& to, std::type_identity_t<T> least,
                 std::type_identity_t<T> most = std::numeric_limits<T>::max()) {
  const auto value = body.find_given(name);
  if (!value) return;
  if constexpr (std::is_integral_v<T>)
    to = value->integer();
  else
    to = value->number();
  if (to < least || to > most)
    throw UserError(
        {value->name(), (*value)->dump(),
         "give a number from " + JsonText(least).dump() + " to " + JsonText(most).dump()});
}

bool read_flag(const JsonCursor& body, const char* name) {
  const auto value = body.find_given(name);
  return value && value->boolean();
}

struct TextGeneration {
  std::vector<std::string> prompts = {};
  SamplingParams params = {.max_new_tokens = 64};
  bool adds_bos = false, has_seed = false;
};

void read_prompts(TextGeneration& to, const JsonCursor& list) {
  for (const JsonCursor& prompt : list.elements()) to.prompts.push_back(prompt.text());
  if (to.prompts.empty() || to.prompts.size() > kMaxPrompts)
    throw UserError({list.name(), std::to_string(to.prompts.size()) + " prompts",
                     "give 1 to " + std::to_string(kMaxPrompts)});
  if (!to.adds_bos && std::ranges::count(to.prompts, "") > 0)
    throw UserError({list.name(), "an empty prompt", "give \"add_BOS\": true"});
}

void read_sampling(TextGeneration& to, const JsonCursor& body) {
  SamplingParams& params = to.params;
  read_number(body, "tokens_to_generate", params.max_new_tokens, 0);
  read_number(body, "temperature", params.temperature, 0, 100);
  read_number(body, "top_k", params.top_k, 0, 1000);
  read_number(body, "top_p", params.top_p, 0, 1);
  read_number(body, "random_seed", params.seed, 0);
  read_number(body, "length_penalty", params.length_penalty, -30, 30);
  read_number(body, "beam_width", params.num_beams, 2, kMaxPrompts);
  params.n = params.num_beams;
  to.has_seed = body.find_given("random_seed").has_value();
  params.return_log_probs = params.prompt_logprobs = read_flag(body, "logprobs");
  if (read_flag(body, "stop_on_eol")) params.stop.emplace_back("\n");
  if (read_flag(body, "stop_on_double_eol")) params.stop.emplace_back("\n\n");
  if (std::int64_t id = 0; body.find_given("stop_token")) {
    read_number(body, "stop_token", id, 0);
    params.termination_id = id;
  }
}

/// Throws a UserError for members that cannot be together, or that have no counterpart here.
void check_members(const TextGeneration& request, const JsonCursor& body) {
  const SamplingParams& params = request.params;
  const auto refuse = [&](bool is_wrong, const char* name, const char* why) {
    if (is_wrong) throw UserError({body[name].name(), why, "leave it out"});
  };
  double decay = 0, bound = 0;
  read_number(body, "top_p_decay", decay, 0, 1);
  read_number(body, "top_p_bound", bound, 0, 1);
  read_flag(body, "no_log");  // the access log has no texts
  refuse(decay > 0, "top_p_decay", "is not in this version");
  refuse(bound > 0, "top_p_bound", "is not in this version");
  refuse(read_flag(body, "prevent_newline_after_colon"), "prevent_newline_after_colon",
         "is not in this version");
  refuse(params.top_k > 0 && params.top_p > 0, "top_p", "has no meaning with 'top_k'");
  refuse(params.max_new_tokens == 0 && !params.return_log_probs, "tokens_to_generate",
         "0 without 'logprobs' asks for nothing");
  refuse(params.num_beams > 1 &&
             (request.prompts.size() > 1 || params.return_log_probs || !params.stop.empty()),
         "beam_width",
         "is for one prompt, without 'logprobs', 'stop_on_eol' and 'stop_on_double_eol'");
}

TextGeneration read_text_generation(const JsonCursor& body) {
  body.allow_only({"prompts", "tokens_to_generate", "logprobs", "temperature", "top_k", "top_p",
                   "top_p_decay", "top_p_bound", "add_BOS", "stop_on_double_eol", "stop_on_eol",
                   "prevent_newline_after_colon", "random_seed", "no_log", "beam_width",
                   "length_penalty", "stop_token"});
  TextGeneration read{.adds_bos = read_flag(body, "add_BOS")};
  read_prompts(read, body["prompts"]);
  read_sampling(read, body);
  check_members(read, body);
  return read;
}

std::vector<std::int64_t> ids_of(const Tokenizer& tokenizer, const std::string& prompt,
                                 bool adds_bos) {
  const std::string source = "field 'prompts'";
  std::vector<std::int64_t> ids = prompt_ids(tokenizer, prompt, source);
  if (!adds_bos) return ids;
  const std::int64_t begin = prompt_ids(tokenizer, "", source).front();
  if (ids.front() != begin) ids.insert(ids.begin(), begin);
  return ids;
}

JsonText answer_of(const Tokenizer& tokenizer, const TextGeneration& request,
                   const std::vector<PromptResult>& results) {
  JsonText texts, segments, tokens, logprobs, scores;
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (const Generation& generation : results[i].texts) {
      std::vector<std::int64_t> ids = results[i].ids;
      std::vector<std::string> pieces = token_texts(tokenizer, {}, ids);
      const std::vector<std::string> added = token_texts(tokenizer, ids, generation.ids);
      std::string text = std::accumulate(added.begin(), added.end(), std::string());
      text.resize(text.size() - std::min(text.size(), generation.num_cut_bytes));
      texts.push_back(request.prompts[i] + text);
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
  const auto [status, message] = error_of(error);
  JsonText body = openai_error(status, message);
  body["message"] = message;
  reply.send(status, body.dump());
}

void generate(const ServedModel& model, const HttpRequest& http, HttpReply reply) {
  try {
    const auto request =
        std::make_shared<const TextGeneration>(read_text_generation(body_of(http)));
    const Tokenizer& tokenizer = *model.tokenizer.tokenizer;
    std::vector<std::vector<std::int64_t>> prompts;
    for (const std::string& prompt : request->prompts)
      prompts.push_back(ids_of(tokenizer, prompt, request->adds_bos));
    start_generation(
        model, std::move(prompts), request->params, {.has_seed = request->has_seed}, reply,
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
