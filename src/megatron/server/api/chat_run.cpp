// Generates the answers to a conversation: its prompt becomes a job, whose texts are parsed into
// parts while they grow.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/chat/output_parser.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/inference/sampling/stop_strings.h"
#include "megatron/server/api/api_routes.h"
#include "megatron/server/api/chat_apis.h"
#include "megatron/server/api/completions.h"
#include "megatron/server/api/error_reply.h"
#include "megatron/server/api/output_plan.h"
#include "megatron/server/api/served_chat.h"
#include "megatron/server/api/served_model.h"
#include "megatron/server/generation_job.h"
#include "megatron/tokenizers/chat/json_values.h"

namespace megatron {
namespace {

using Kind = OutputKind;

/// Writes the answers of one request. The engine's thread calls it.
class ChatRun {
 public:
  /// Without a reply, body() is the answer.
  ChatRun(const ChatApi& api, const ServedModel& model, ChatRequest request,
          std::optional<HttpReply> reply)
      : api_(api),
        tokenizer_(*model.tokenizer.tokenizer),
        request_(std::move(request)),
        reply_(std::move(reply)) {
    apply_defaults(model, request_.request);
    plan_output(chat_of(model), request_, plan_);
    if (request_.is_open_ended)
      request_.request.params.max_new_tokens =
          std::max<std::int64_t>(model.max_model_len - std::ssize(request_.prompt_ids), 1);
    writer_ = api.make_writer(model, request_);
    const bool has_tools = request_.tool_choice != ToolChoice::none;
    for (std::int64_t i = 0; i < request_.request.params.n; ++i) {
      texts_.push_back(
          {.parser = OutputParser(
               {.format = plan_.format,
                .prompt = request_.prompt,
                .continues = request_.continue_final_message,
                .tools = has_tools ? chat::read_json_value(request_.tools->dump(), "field 'tools'")
                                   : chat::Value(),
                .id_seed = request_.id.empty() ? random_id("") : request_.id})});
      answers_.push_back({.index = i});
    }
  }

  const ChatRequest& request() const { return request_; }
  bool is_stream() const { return reply_ && request_.request.stream; }

  void take(const TextPiece& piece) {
    const auto index = static_cast<std::size_t>(piece.choice);
    Text& text = texts_[index];
    ChatAnswer& answer = answers_[index];
    begin();
    for (const SampledToken& token : piece.tokens) {
      answer.ids.push_back(token.id);
      text.pending.ids.push_back(token.id);
      text.pending.tokens.push_back(token);
    }
    show(index, text.parser.feed(piece.text));
    if (!piece.finished) return;
    answer.finish = piece.finished->finish_reason;
    answer.stop_string = piece.finished->stop_string;
    answer.stop_reason = stop_reason(*piece.finished, request_.request.params);
    answer.prompt_tokens = piece.finished->prompt_tokens;
    answer.routed_experts = piece.finished->routed_experts;
    show(index, text.parser.finish());
    count_tags(index, /*next=*/nullptr);
    if (!answer.parts.empty()) write(writer_->end_part(answer));
    answer.stop_token = piece.finished->stop_token;
    if (answer.stop_token) {
      answer.ids.push_back(answer.stop_token->id);
      text.pending.ids.push_back(answer.stop_token->id);
      text.pending.tokens.push_back(*answer.stop_token);
    }
    write(writer_->end_answer(answer, text.pending));
  }

  std::string body(CompletionUsage usage) {
    for (const ChatAnswer& answer : answers_) usage.reasoning_tokens += answer.reasoning_tokens;
    return is_stream() ? writer_->end(answers_, usage) : writer_->body(answers_, usage);
  }

  void end(const JobStats& stats) {
    if (!is_stream()) return reply_->send(200, body(stats.usage));
    begin();
    write(body(stats.usage));
    reply_->end();
  }

  void fail(const std::exception_ptr& error) {
    const ErrorReply told = error_of(error);
    if (!has_begun_) return reply_->send(told.status, api_.error_body(told).dump());
    write(writer_->error_event(told));
    reply_->end();
  }

 private:
  struct Text {
    OutputParser parser;
    ChatDelta pending = {};  ///< tokens that are in no part yet
  };

  void begin() {
    if (has_begun_ || !is_stream()) return;
    has_begun_ = true;
    reply_->begin_stream("text/event-stream");
    write(writer_->begin());
  }
  void write(const std::string& events) {
    if (is_stream() && !events.empty()) reply_->write(events);
  }

  void show(std::size_t index, const OutputDelta& delta) {
    for (const OutputPart& part : delta) {
      const Kind kind = part.kind;
      // Of demanded calls, content is what a limit of tokens has cut before the arguments.
      if (kind == Kind::content && request_.demands_calls()) continue;
      if (kind == Kind::call && part.call > 0 && !request_.parallel_tool_calls) continue;
      if (!part.name.empty()) begin_part(index, {.kind = kind, .name = part.name, .id = part.id});
      if (!part.text.empty()) append(index, kind, part.text);
    }
  }

  void append(std::size_t index, Kind kind, std::string added) {
    ChatAnswer& answer = answers_[index];
    if (kind != Kind::call && request_.request.params.skip_special_tokens)
      hide_special_tokens(added, texts_[index].pending.ids);
    if (added.empty()) return;
    if (answer.parts.empty() || answer.parts.back().kind != kind) begin_part(index, {.kind = kind});
    ChatPart& part = answer.parts.back();
    ChatDelta delta = std::exchange(texts_[index].pending, {});
    delta.text = added;
    part.text += added;
    part.tokens.insert(part.tokens.end(), delta.tokens.begin(), delta.tokens.end());
    if (kind == Kind::reasoning) answer.reasoning_tokens += std::ssize(delta.tokens);
    write(writer_->add(answer, delta));
  }

  /// Removes the special tokens that no parser took for tags from a text that `ids` added.
  void hide_special_tokens(std::string& text, const std::vector<std::int64_t>& ids) const {
    for (const std::int64_t wide : ids) {
      const auto id = static_cast<std::int32_t>(wide);
      const std::string token = tokenizer_.is_special(id) ? tokenizer_.token(id) : "";
      if (const std::size_t at = text.find(token); at != std::string::npos)
        text.erase(at, token.size());
    }
  }

  void begin_part(std::size_t index, ChatPart part) {
    ChatAnswer& answer = answers_[index];
    if (!answer.parts.empty()) {
      count_tags(index, &part);
      write(writer_->end_part(answer));
    }
    answer.parts.push_back(std::move(part));
    write(writer_->begin_part(answer));
  }

  /// The tokens since the last text of a part, all but the one whose text begins the next part, are
  /// its closing tag. They belong to no part.
  void count_tags(std::size_t index, const ChatPart* next) {
    ChatAnswer& answer = answers_[index];
    std::vector<SampledToken>& tokens = texts_[index].pending.tokens;
    const std::size_t num_kept = next == nullptr || tokens.empty() ? 0 : 1;
    if (!answer.parts.empty() && answer.parts.back().kind == Kind::reasoning)
      answer.reasoning_tokens += num_closing(std::span(tokens).first(tokens.size() - num_kept));
    tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(num_kept));
  }

  /// Returns how many tokens close the reasoning. What follows may be the begin of a call whose
  /// name is not complete.
  std::int64_t num_closing(std::span<const SampledToken> tokens) const {
    if (plan_.format.reasoning == nullptr) return std::ssize(tokens);
    std::string said;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      said += tokenizer_.token(static_cast<std::int32_t>(tokens[i].id));
      if (said.find(plan_.format.reasoning->end) != std::string::npos)
        return static_cast<std::int64_t>(i + 1);
    }
    return std::ssize(tokens);
  }

  const ChatApi& api_;
  const Tokenizer& tokenizer_;
  ChatRequest request_;
  std::optional<HttpReply> reply_;
  OutputPlan plan_;  ///< the parsers refer to it
  std::unique_ptr<ChatWriter> writer_;
  std::vector<Text> texts_;
  std::vector<ChatAnswer> answers_;
  bool has_begun_ = false;
};

/// Reads a request, renders its prompt and calls `use`. Answers mistakes of the client.
template <class Use>
void with_request(const ChatApi& api, const ServedModel& model, const HttpRequest& http,
                  HttpReply& reply, const Use& use) {
  try {
    ChatRequest request = api.read(http.body);
    check_model_name(model, request.request.model);
    render_prompt(model, request);
    use(std::move(request));
  } catch (const UserError&) {
    const ErrorReply told = error_of(std::current_exception());
    reply.send(told.status, api.error_body(told).dump());
  }
}

}  // namespace

void answer_chat(const ChatApi& api, const ServedModel& model, const HttpRequest& http,
                 HttpReply reply) {
  with_request(api, model, http, reply, [&](ChatRequest request) {
    const auto run = std::make_shared<ChatRun>(api, model, std::move(request), reply);
    const CompletionRequest& asked = run->request().request;
    SamplingParams params = asked.params;
    params.skip_special_tokens = false;  // parsers of reasoning and calls need them
    start_generation(model, {run->request().prompt_ids}, params,
                     {.priority = asked.priority, .has_seed = asked.has_seed}, reply,
                     {.on_piece = [run](const TextPiece& piece) { run->take(piece); },
                      .on_end = [run](const std::vector<PromptResult>&,
                                      const JobStats& stats) { run->end(stats); },
                      .on_error = [run](const std::exception_ptr& error) { run->fail(error); }});
  });
}

OfflineChat open_offline_chat(const ServedModel& model, const std::string& body,
                              const std::string& id) {
  ChatRequest read = kChatCompletionsApi.read(body);
  read.id = id;
  render_prompt(model, read);
  const auto run =
      std::make_shared<ChatRun>(kChatCompletionsApi, model, std::move(read), std::nullopt);
  CompletionRequest request = run->request().request;
  request.prompts = {run->request().prompt_ids};
  request.truncate_prompt_tokens = 0;          // they are truncated
  request.params.skip_special_tokens = false;  // parsers of reasoning and calls need them
  const auto answer = [run, params = request.params, &tokenizer = *model.tokenizer.tokenizer](
                          const std::vector<PromptResult>& results) {
    const auto& [ids, texts] = results.front();
    for (std::size_t choice = 0; choice < texts.size(); ++choice) {
      const Generation& text = texts[choice];
      TextPiece piece{.choice = static_cast<std::int64_t>(choice)};
      GeneratedText stream(tokenizer, ids, params);
      for (std::size_t i = 0; i < text.ids.size(); ++i) {
        piece.text = stream.add(text.ids[i], static_cast<std::int64_t>(i) >= params.min_new_tokens);
        piece.tokens = {text.tokens.empty() ? SampledToken{.id = text.ids[i]} : text.tokens[i]};
        run->take(piece);
      }
      run->take({.choice = piece.choice, .text = stream.finish(), .finished = &text});
    }
    return run->body(usage_of(results));
  };
  return {std::move(request), answer};
}

std::vector<ApiRoute> chat_routes(const ServedModel& model) {
  const auto route = [&model](const char* path, const ChatApi& api) -> ApiRoute {
    return {"POST", path, [&model, &api](const HttpRequest& request, HttpReply reply) {
              answer_chat(api, model, request, std::move(reply));
            }};
  };
  return {route("/v1/chat/completions", kChatCompletionsApi), route("/v1/responses", kResponsesApi),
          route("/v1/messages", kAnthropicMessagesApi)};
}

std::vector<ApiRoute> chat_prompt_routes(const ServedModel& model) {
  using Body = JsonText (*)(const ChatRequest&);
  const auto route = [&model](const char* path, const ChatApi& api, Body body) -> ApiRoute {
    return {"POST", path, [&model, &api, body](const HttpRequest& http, HttpReply reply) {
              with_request(api, model, http, reply, [&](const ChatRequest& request) {
                reply.send(200, body(request).dump());
              });
            }};
  };
  return {route("/apply-template", kChatCompletionsApi,
                [](const ChatRequest& request) -> JsonText {
                  return {{"prompt", request.prompt}};
                }),
          route("/v1/responses/input_tokens", kResponsesApi,
                [](const ChatRequest& request) -> JsonText {
                  return {{"object", "response.input_tokens"},
                          {"input_tokens", request.prompt_ids.size()}};
                }),
          route("/v1/messages/count_tokens", kAnthropicMessagesApi,
                [](const ChatRequest& request) -> JsonText {
                  return {{"input_tokens", request.prompt_ids.size()}};
                })};
}

}  // namespace megatron
