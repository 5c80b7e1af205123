#include "megatron/server/api/completions.h"

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/inference/completions/completion_request.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/server/api/error_reply.h"
#include "megatron/server/api/served_model.h"
#include "megatron/server/generation_job.h"

namespace megatron {
namespace {

JsonText timings_json(const JobStats& stats) {
  const auto rate = [](std::int64_t count, double seconds) {
    return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
  };
  const CompletionUsage& usage = stats.usage;
  return {{"cache_n", usage.cached_tokens},
          {"prompt_n", usage.prompt_tokens - usage.cached_tokens},
          {"queue_ms", 1000 * stats.queue_s},
          {"prompt_ms", 1000 * stats.prefill_s},
          {"predicted_n", usage.completion_tokens},
          {"predicted_ms", 1000 * stats.decode_s},
          {"predicted_per_second", rate(usage.completion_tokens, stats.decode_s)}};
}

/// Writes the answer to one request. The engine's thread calls it.
class CompletionRun {
 public:
  CompletionRun(const ServedModel& model, CompletionRequest request,
                std::vector<std::vector<std::int64_t>> prompts, HttpReply reply)
      : tokenizer_(*model.tokenizer.tokenizer),
        request_(std::move(request)),
        prompts_(std::move(prompts)),
        reply_(std::move(reply)),
        head_{{"id", random_id("cmpl-")},
              {"object", "text_completion"},
              {"created", unix_time()},
              {"model", request_.model.empty() ? model.name : request_.model}} {}

  const CompletionRequest& request() const { return request_; }
  const std::vector<std::vector<std::int64_t>>& prompts() const { return prompts_; }

  void take(const TextPiece& piece) {
    if (piece.text.empty() && piece.tokens.empty() && !piece.finished) return;
    const std::int64_t index =
        static_cast<std::int64_t>(piece.prompt) * request_.params.n + piece.choice;
    CompletionChoice& writer =
        choices_.try_emplace(index, request_, tokenizer_, piece.prompt, prompts_[piece.prompt])
            .first->second;
    JsonText choice = {{"index", index}};
    choice.update(writer.add(piece.text, piece.tokens, piece.prompt_tokens, piece.finished));
    write_event({{"choices", JsonText::array({choice})}});
  }

  void end(std::vector<PromptResult> results, const JobStats& stats) {
    const JsonText usage = usage_json(stats.usage), timings = timings_json(stats);
    if (request_.stream) {
      begin();
      if (request_.include_usage)
        write_event({{"choices", JsonText::array()}, {"usage", usage}, {"timings", timings}});
      reply_.write("data: [DONE]\n\n");
      return reply_.end();
    }
    JsonText body = head_;
    body["choices"] = completion_choices(request_, tokenizer_, std::move(results));
    body["usage"] = usage;
    body["timings"] = timings;
    reply_.send(200, body.dump());
  }

  void fail(const std::exception_ptr& error) {
    const ErrorReply told = error_of(error);
    const std::string body = error_json(told).dump();
    if (!has_begun_) return reply_.send(told.status, body);
    reply_.write("data: " + body + "\n\ndata: [DONE]\n\n");
    reply_.end();
  }

 private:
  void begin() {
    if (std::exchange(has_begun_, true)) return;
    reply_.begin_stream("text/event-stream");
  }
  void write_event(const JsonText& members) {
    begin();
    JsonText event = head_;
    event.update(members);
    reply_.write("data: " + event.dump() + "\n\n");
  }

  const Tokenizer& tokenizer_;
  const CompletionRequest request_;
  const std::vector<std::vector<std::int64_t>> prompts_;
  HttpReply reply_;
  const JsonText head_;
  std::map<std::int64_t, CompletionChoice> choices_;  ///< of a stream, by index
  bool has_begun_ = false;
};

/// Throws a UserError for what a stream cannot have.
void check_stream(const CompletionRequest& request) {
  const SamplingParams& params = request.params;
  const auto refuse = [](bool asked, const char* member) {
    if (asked)
      throw UserError({std::string("field '") + member + "'", "has no meaning with 'stream'",
                       "leave one of them out"});
  };
  refuse(params.num_samples() > params.n, "best_of");
  refuse(params.return_routed_experts, "return_routed_experts");
}

}  // namespace

void apply_defaults(const ServedModel& model, CompletionRequest& request) {
  const auto apply = [&](const char* name, auto SamplingParams::*member) {
    if (std::ranges::count(request.given, name) == 0)
      request.params.*member = model.defaults.*member;
  };
  apply("temperature", &SamplingParams::temperature);
  apply("top_k", &SamplingParams::top_k);
  apply("top_p", &SamplingParams::top_p);
  apply("min_p", &SamplingParams::min_p);
  apply("repetition_penalty", &SamplingParams::repetition_penalty);
}

void answer_completion(const ServedModel& model, const HttpRequest& http, HttpReply reply) {
  try {
    CompletionRequest request =
        read_completion(JsonCursor(parse_json(http.body, "the body"), "the body"), http.body);
    check_model_name(model, request.model);
    apply_defaults(model, request);
    if (request.stream) check_stream(request);
    check_sizes(model,
                std::ssize(request.prompts) *
                    std::max(request.params.num_samples(), request.params.num_beams),
                request.prompts);
    std::vector<std::vector<std::int64_t>> prompts =
        ids_of_prompts(request, model.tokenizer, "field 'prompt'");
    const auto run =
        std::make_shared<CompletionRun>(model, std::move(request), std::move(prompts), reply);
    const CompletionRequest& asked = run->request();
    JobCallbacks callbacks{
        .on_end = [run](std::vector<PromptResult> results,
                        const JobStats& stats) { run->end(std::move(results), stats); },
        .on_error = [run](const std::exception_ptr& error) { run->fail(error); }};
    if (asked.stream) callbacks.on_piece = [run](const TextPiece& piece) { run->take(piece); };
    start_generation(model, run->prompts(), asked.params,
                     {.priority = asked.priority, .has_seed = asked.has_seed}, reply,
                     std::move(callbacks));
  } catch (const UserError&) {
    reply_error(reply, std::current_exception());
  }
}

}  // namespace megatron
