#include "megatron/server/generation_job.h"

#include <algorithm>
#include <atomic>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <utility>
#include <variant>

#include "megatron/base/error.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/grammar/grammar.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/inference/request_server.h"
#include "megatron/inference/sampling/stop_strings.h"
#include "megatron/server/api/error_reply.h"
#include "megatron/server/api/served_model.h"

namespace megatron {
namespace {

[[noreturn]] void throw_context_exceeded(const ServedModel& model, const std::string& got,
                                         const std::string& fix) {
  throw RefusedRequest(
      400, "context_length_exceeded",
      {"the model has a context of " + std::to_string(model.max_model_len) + " tokens", got, fix});
}

void check_prompt(const ServedModel& model, const std::vector<std::int64_t>& ids,
                  std::int64_t max_new_tokens) {
  const bool has_encoder = model.tokenizer.has_encoder();  // new tokens are those of the decoder
  const std::int64_t size = std::ssize(ids), longest = model.max_model_len,
                     left = longest - (has_encoder ? 1 : size);
  if (size > longest || max_new_tokens > left)
    throw_context_exceeded(model,
                           "the prompt has " + std::to_string(size) + ", and 'max_tokens' is " +
                               std::to_string(max_new_tokens),
                           size > longest ? "shorten the prompt"
                                          : "ask for at most " + std::to_string(left) + " tokens" +
                                                (has_encoder ? "" : ", or shorten the prompt"));
  for (const std::int64_t id : ids)
    if (id < 0 || id >= model.vocab_size)
      throw UserError({"the prompt has the token id " + std::to_string(id), "",
                       "the model has the ids 0 to " + std::to_string(model.vocab_size - 1)});
}

void check_num_texts(const ServedModel& model, std::int64_t count) {
  if (count > model.max_texts)
    throw UserError({"the request has " + std::to_string(count) + " texts",
                     "the server takes " + std::to_string(model.max_texts) + " at a time",
                     "divide it, or start the server with a higher --max-queued-requests"});
}

/// Returns a number that no other request without a seed has.
std::uint64_t next_site() {
  static std::atomic<std::uint64_t> next = std::random_device()();
  return next++;
}

class GenerationJob : public std::enable_shared_from_this<GenerationJob> {
 public:
  GenerationJob(const ServedModel& model, SamplingParams params, JobOptions options,
                HttpReply reply, JobCallbacks callbacks)
      : model_(model),
        params_(std::move(params)),
        options_(options),
        reply_(std::move(reply)),
        callbacks_(std::move(callbacks)) {}

  void start(std::vector<std::vector<std::int64_t>> prompts) {
    enter(std::ssize(prompts) * std::max(params_.num_samples(), params_.num_beams));
    for (std::vector<std::int64_t>& ids : prompts) results_.push_back({.ids = std::move(ids)});
    num_left_ = results_.size();
    reply_.on_disconnect([weak = weak_from_this()] {
      if (const auto job = weak.lock()) job->cancel();
    });
    const std::uint64_t prompt = options_.has_seed ? 0 : next_site();
    const auto num_samples = static_cast<std::uint64_t>(params_.num_samples());
    std::vector<TextRequest> requests;  // results_ belongs to the engine's thread from now on
    for (std::size_t i = 0; i < results_.size(); ++i) {
      TextRequest request{.prompt = results_[i].ids,
                          .params = params_,
                          .site = {.prompt = prompt, .sample = i * num_samples},
                          .priority = options_.priority,
                          .source = "the prompt",
                          .pooling = options_.pooling,
                          .normalizes = options_.normalizes};
      if (model_.request_timeout_s > 0) request.deadline_s = begin_s_ + model_.request_timeout_s;
      requests.push_back(std::move(request));
    }
    try {
      for (std::size_t i = 0; i < requests.size() && !has_ended_; ++i)
        add(i, std::move(requests[i]));
    } catch (...) {
      fail(std::current_exception());
    }
  }

 private:
  struct Text {
    GeneratedText stream;
    std::size_t num_tokens = 0;
  };

  /// Counts the texts of the job. Throws an error for the client where there are too many.
  void enter(std::int64_t count) {
    check_num_texts(model_, count);
    num_texts_ = count;
    if (model_.num_texts->fetch_add(count) + count <= model_.max_texts) return;
    leave();
    reply_.add_header("Retry-After", "1");
    throw RefusedRequest(429, "queue_full", {"too many texts wait", "", "try again later"});
  }
  void leave() { *model_.num_texts -= num_texts_.exchange(0); }

  void add(std::size_t prompt, TextRequest request) {
    const RequestId id = model_.engine->add_request(
        std::move(request), [job = shared_from_this(), prompt](const News& news) {
          try {
            job->take(prompt, news);
          } catch (...) {
            job->fail(std::current_exception());
          }
        });
    const std::lock_guard lock(mutex_);
    ids_.push_back(id);
    if (has_ended_) model_.engine->cancel(id);
  }

  /// Ends all requests that have not ended.
  void cancel() {
    has_ended_ = true;
    leave();
    const std::lock_guard lock(mutex_);
    for (const RequestId id : ids_) model_.engine->cancel(id);
  }

  void fail(const std::exception_ptr& error) {
    if (has_ended_.exchange(true)) return;
    cancel();
    const std::lock_guard lock(callback_mutex_);
    try {
      callbacks_.on_error(error);
    } catch (const std::exception& failure) {
      std::cerr << "ERROR: " + std::string(failure.what()) + "\n" << std::flush;
    }
  }

  void take(std::size_t prompt, const News& news) {
    if (news.error) return fail(news.error);
    const std::lock_guard lock(callback_mutex_);
    if (has_ended_) return;
    Update update = news.update;
    if (update.token || update.finished) {
      const double now_s = monotonic_seconds();
      if (first_token_s_ == 0) first_token_s_ = now_s;
      last_token_s_ = now_s;
      if (callbacks_.on_piece && params_.num_samples() <= params_.n) tell(prompt, update);
    }
    if (update.finished) start_s_ = std::max(start_s_, update.finished->start_s);
    take_finished(update, results_[prompt].texts);
    if (update.is_last && --num_left_ == 0) end();
  }

  void tell(std::size_t prompt, const Update& update) {
    TextPiece piece{.prompt = prompt, .choice = update.text, .prompt_tokens = update.prompt_tokens};
    const auto place = std::pair(prompt, update.text);
    auto found = texts_.find(place);
    if (found == texts_.end()) {
      std::span<const std::int64_t> context = results_[prompt].ids;
      if (model_.tokenizer.has_encoder()) context = {};  // the text begins anew
      const Tokenizer& tokenizer = *model_.tokenizer.tokenizer;
      found = texts_.emplace(place, Text{GeneratedText(tokenizer, context, params_)}).first;
    }
    Text& text = found->second;
    const auto add_token = [&](SampledToken token) {
      piece.text += text.stream.add(
          token.id, static_cast<std::int64_t>(text.num_tokens++) >= params_.min_new_tokens);
      piece.tokens.push_back(std::move(token));
    };
    if (update.token) {
      SampledToken token = update.scored;
      token.id = *update.token;
      add_token(std::move(token));
    }
    if (update.finished) {
      const std::vector<std::int64_t>& ids = update.finished->ids;  // those of a beam come at once
      while (text.num_tokens < ids.size()) add_token({.id = ids[text.num_tokens]});
      piece.text += text.stream.finish();
      piece.finished = &*update.finished;
    }
    callbacks_.on_piece(piece);
    if (update.finished) texts_.erase(place);
  }

  void end() {
    stats_.usage = usage_of(results_);
    const double start_s = std::clamp(start_s_, begin_s_, std::max(begin_s_, first_token_s_));
    stats_.queue_s = start_s - begin_s_;
    stats_.prefill_s = std::max(0.0, first_token_s_ - start_s);
    stats_.decode_s = last_token_s_ - first_token_s_;
    reply_.set_usage({.prompt_tokens = stats_.usage.prompt_tokens,
                      .cached_tokens = stats_.usage.cached_tokens,
                      .new_tokens = stats_.usage.completion_tokens,
                      .queue_s = stats_.queue_s,
                      .first_token_s = first_token_s_ - begin_s_,
                      .last_token_s = last_token_s_ - begin_s_});
    leave();
    callbacks_.on_end(std::move(results_), stats_);
    has_ended_ = true;
  }

  const ServedModel& model_;
  const SamplingParams params_;
  const JobOptions options_;
  HttpReply reply_;
  const JobCallbacks callbacks_;
  const double begin_s_ = monotonic_seconds();
  std::atomic<bool> has_ended_ = false;
  std::atomic<std::int64_t> num_texts_ = 0;  ///< of this job in ServedModel::num_texts
  std::mutex mutex_;                         ///< guards ids_
  std::mutex callback_mutex_;  ///< the request may fail on another thread than the engine's
  std::vector<RequestId> ids_;
  // The engine's thread has what follows.
  std::vector<PromptResult> results_;
  std::map<std::pair<std::size_t, std::int64_t>, Text> texts_;
  std::size_t num_left_ = 0;
  double start_s_ = 0, first_token_s_ = 0, last_token_s_ = 0;
  JobStats stats_;
};

}  // namespace

void check_sizes(const ServedModel& model, std::int64_t num_texts,
                 const std::vector<CompletionPrompt>& prompts) {
  check_num_texts(model, num_texts);
  for (const CompletionPrompt& prompt : prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    if (text == nullptr || text->size() <= model.max_prompt_bytes) continue;
    throw_context_exceeded(model, "the prompt has " + std::to_string(text->size()) + " bytes",
                           "shorten the prompt");
  }
}

void start_generation(const ServedModel& model, std::vector<std::vector<std::int64_t>> prompts,
                      const SamplingParams& params, JobOptions options, HttpReply reply,
                      JobCallbacks callbacks) {
  SamplingParams own = params;
  own.add_end_tokens(model.tokenizer.stop_token_ids);
  check_sampling_options(own, model.vocab_size);
  if (std::max(own.logprobs, own.prompt_best) > model.max_logprobs)
    throw UserError({"fields 'logprobs', 'top_logprobs' and 'prompt_logprobs'", "too many tokens",
                     "at most " + std::to_string(model.max_logprobs) + " (--max-logprobs)"});
  for (const auto& ids : prompts) check_prompt(model, ids, own.max_new_tokens);
  if (model.grammars) model.grammars->get(own.constraint);
  std::make_shared<GenerationJob>(model, std::move(own), options, std::move(reply),
                                  std::move(callbacks))
      ->start(std::move(prompts));
}

}  // namespace megatron
