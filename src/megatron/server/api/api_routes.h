// The routes of the APIs of a model, which must outlive them.
#pragma once

#include <string>
#include <vector>

#include "megatron/server/http/http_server.h"

namespace megatron {

class HttpRouter;
struct ServedModel;

/// What HttpRouter::add() takes.
struct ApiRoute {
  std::string method, path;
  HttpHandler handler;
};

/// Return the routes of chat_apis.h: those that generate, and those that render prompts only,
/// /apply-template and what counts tokens.
std::vector<ApiRoute> chat_routes(const ServedModel& model);
std::vector<ApiRoute> chat_prompt_routes(const ServedModel& model);
/// Returns OpenAI's /v1/embeddings, vLLM's /v1/score, and the reranking of Jina and Cohere. Scores
/// are cosine similarities of embeddings.
std::vector<ApiRoute> embedding_routes(const ServedModel& model);
/// Returns /api of Megatron-LM's run_text_generation_server.py.
std::vector<ApiRoute> text_generation_routes(const ServedModel& model);
/// Returns the tokenizer: /tokenize and /detokenize in vLLM's form, and /tokenizer_info, which
/// lm-eval asks for.
std::vector<ApiRoute> tokenize_routes(const ServedModel& model);

/// Adds all of them, and /v1/completions.
void add_api_routes(HttpRouter& router, const ServedModel& model);

}  // namespace megatron
