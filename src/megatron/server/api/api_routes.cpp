#include "megatron/server/api/api_routes.h"

#include <utility>

#include "megatron/server/api/completions.h"
#include "megatron/server/router.h"

namespace megatron {

void add_api_routes(HttpRouter& router, const ServedModel& model) {
  router.add("POST", "/v1/completions", [&model](const HttpRequest& request, HttpReply reply) {
    answer_completion(model, request, std::move(reply));
  });
  const auto add = [&](std::vector<ApiRoute> routes, RouteAccess access) {
    for (ApiRoute& route : routes)
      router.add(route.method, route.path, std::move(route.handler), access);
  };
  for (const auto& routes : {chat_routes, embedding_routes, text_generation_routes})
    add(routes(model), RouteAccess::generates);
  for (const auto& routes : {chat_prompt_routes, tokenize_routes})
    add(routes(model), RouteAccess::keyed);
}

}  // namespace megatron
