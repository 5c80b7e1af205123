// The APIs that answer conversations. Each reads its body into a ChatRequest and writes answers in
// its own form; between them is one path (chat_run.cpp).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "megatron/server/api/chat_answer.h"
#include "megatron/server/api/chat_request.h"
#include "megatron/server/http/http_server.h"

namespace megatron {

struct ServedModel;

struct ChatApi {
  /// Reads the body of a request. UserError that names the member that is wrong.
  ChatRequest (*read)(const std::string& body);
  /// Returns what writes the answers to a request whose prompt is rendered.
  std::unique_ptr<ChatWriter> (*make_writer)(const ServedModel& model, const ChatRequest& request);
  /// Returns the body of an error.
  JsonText (*error_body)(const ErrorReply& error);
};

/// The ChatApi::make_writer of a class of writers.
template <class Writer>
std::unique_ptr<ChatWriter> new_chat_writer(const ServedModel& model, const ChatRequest& request) {
  return std::make_unique<Writer>(model, request);
}

extern const ChatApi kChatCompletionsApi;    ///< OpenAI's /v1/chat/completions, with vLLM's members
extern const ChatApi kResponsesApi;          ///< OpenAI's /v1/responses; the server keeps nothing
extern const ChatApi kAnthropicMessagesApi;  ///< Anthropic's /v1/messages

/// Answers a request: with a stream if it asks for one.
void answer_chat(const ChatApi& api, const ServedModel& model, const HttpRequest& request,
                 HttpReply reply);

}  // namespace megatron
