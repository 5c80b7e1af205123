// OpenAI's /v1/completions with the members that vLLM adds.
#pragma once

#include "megatron/server/http/http_server.h"

namespace megatron {

struct ServedModel;
struct CompletionRequest;

/// Sets the options that the request does not give to the model's.
void apply_defaults(const ServedModel& model, CompletionRequest& request);

/// Answers POST /v1/completions, with a stream if the request asks for one.
void answer_completion(const ServedModel& model, const HttpRequest& http, HttpReply reply);

}  // namespace megatron
