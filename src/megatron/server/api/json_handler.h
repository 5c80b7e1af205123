// What handlers of requests share: bodies of JSON, and answers to what they throw.
#pragma once

#include <exception>
#include <utility>

#include "megatron/base/json.h"
#include "megatron/base/json_text.h"
#include "megatron/server/api/error_reply.h"
#include "megatron/server/http/http_server.h"

namespace megatron {

/// Returns the body of a request.
inline JsonCursor body_of(const HttpRequest& request) {
  return {parse_json(request.body, "request body"), "request body"};
}

/// Sends a UserError that `use` throws as an error in OpenAI's form. Others are the server's, which
/// logs them.
template <class Use>
void answer_errors(HttpReply& reply, const Use& use) {
  try {
    use();
  } catch (const UserError&) {
    reply_error(reply, std::current_exception());
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
