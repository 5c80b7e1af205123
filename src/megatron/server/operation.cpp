#include "megatron/server/operation.h"

#include <algorithm>
#include <utility>

#include "megatron/base/json_text.h"
#include "megatron/base/wall_clock.h"
#include "megatron/server/openapi.h"
#include "megatron/server/page/chat_page.h"

namespace megatron {
namespace {

constexpr std::string_view kModels = "/v1/models";

std::string metrics_text(const HttpRouter& router, const EngineLoad& load) {
  ExpositionWriter out;
  const auto open = static_cast<double>(router.num_open());
  out.gauge("megatron_num_requests", "Requests that are not answered completely.", open);
  out.gauge("megatron_num_requests_running", "Texts that are computed.",
            static_cast<double>(load.num_running));
  out.gauge("megatron_num_requests_waiting", "Texts that wait for room in a pass or the KV cache.",
            static_cast<double>(load.num_waiting));
  out.gauge("megatron_kv_cache_usage_ratio", "Blocks of the KV cache in use, of all.",
            load.cache_usage);
  router.metrics().write(out);
  return std::move(out).text();
}

JsonText model_entry(const std::string& name, std::int64_t created, std::int64_t max_model_len) {
  return {{"id", name},
          {"object", "model"},
          {"created", created},
          {"owned_by", "megatron"},
          {"root", name},
          {"parent", nullptr},
          {"max_model_len", max_model_len}};
}

}  // namespace

void add_operation_routes(HttpRouter& router, const std::string& version,
                          std::function<EngineLoad()> load) {
  const HttpHandler health = [&router](const HttpRequest&, HttpReply reply) {
    if (!router.refuse_unless_ready(reply)) reply.send(200, R"({"status":"ok"})");
  };
  for (const char* path : {"/health", "/ping"}) router.add("GET", path, health, RouteAccess::open);
  router.add(
      "GET", "/",
      [](const HttpRequest&, HttpReply reply) {
        reply.send(200, std::string(chat_page().html), "text/html; charset=utf-8",
                   chat_page_headers());
      },
      RouteAccess::open);
  router.add(
      "GET", "/openapi.json",
      [](const HttpRequest&, HttpReply reply) { reply.send(200, openapi_json()); },
      RouteAccess::open);
  router.add(
      "GET", "/version",
      [body = JsonText{{"version", version}}.dump()](const HttpRequest&, HttpReply reply) {
        reply.send(200, body);
      },
      RouteAccess::open);
  router.add(
      "GET", "/metrics",
      [&router, load = std::move(load)](const HttpRequest&, HttpReply reply) {
        reply.send(200, metrics_text(router, load()), kExpositionType);
      },
      RouteAccess::open);
}

void add_model_routes(HttpRouter& router, const std::vector<std::string>& names,
                      std::int64_t max_model_len) {
  const auto created = static_cast<std::int64_t>(unix_seconds());
  JsonText list = JsonText::array();
  for (const std::string& name : names) list.push_back(model_entry(name, created, max_model_len));
  router.add(
      "GET", std::string(kModels),
      [body = JsonText{{"object", "list"}, {"data", list}}.dump()](
          const HttpRequest&, HttpReply reply) { reply.send(200, body); },
      RouteAccess::keyed);
  router.add(
      "GET", std::string(kModels) + "/*",
      [names, created, max_model_len](const HttpRequest& request, HttpReply reply) {
        const std::string name = request.path.substr(kModels.size() + 1);
        if (std::ranges::count(names, name) == 0)
          return send_error(reply, 404, "there is no model '" + name + "'", "model_not_found");
        reply.send(200, model_entry(name, created, max_model_len).dump());
      },
      RouteAccess::keyed);
}

}  // namespace megatron
