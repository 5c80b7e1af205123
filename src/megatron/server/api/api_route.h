// A route of an API: what HttpRouter::add() takes.
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/base/json_text.h"
#include "megatron/server/api/error_reply.h"
#include "megatron/server/http/http_server.h"

namespace megatron {

struct ApiRoute {
  std::string method, path;
  HttpHandler handler;
};

/// Sends what `use` throws as an error in OpenAI's form.
template <class Use>
void answer_errors(HttpReply& reply, const Use& use) {
  try {
    use();
  } catch (const std::exception&) {
    const auto [status, message] = error_of(std::current_exception());
    reply.send(status, openai_error(status, message).dump());
  }
}

/// Returns a handler that sends body(request) with status 200.
template <class Body>
HttpHandler json_handler(Body body) {
  return [body = std::move(body)](const HttpRequest& request, HttpReply reply) {
    answer_errors(reply, [&] { reply.send(200, JsonText(body(request)).dump()); });
  };
}

}  // namespace megatron
