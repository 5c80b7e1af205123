#include "megatron/server/api/output_plan.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/words.h"
#include "megatron/chat/output_parser.h"
#include "megatron/server/api/served_chat.h"

namespace megatron {
namespace {

/// Makes references to the root of a schema ones to `place`, where another schema has it.
void move_references(OrderedJson& schema, const std::string& place) {
  for (auto& [key, value] : schema.items()) {
    if (value.is_structured()) move_references(value, place);
    if (key != "$ref" || !value.is_string()) continue;
    if (const auto target = value.get<std::string>(); target.starts_with('#'))
      value = "#" + place + target.substr(1);
  }
}

/// Returns the schema of the calls that a request demands: a list of {"name", "arguments"}, or one
/// such object where there is to be one call.
OrderedJson calls_schema(const ChatRequest& request) {
  const bool is_list = request.tool_choice == ToolChoice::required && request.parallel_tool_calls;
  OrderedJson calls = OrderedJson::array();
  for (const OrderedJson& tool : *request.tools) {
    const OrderedJson& function = tool["function"];
    const auto name = function["name"].get<std::string>();
    const std::vector<std::string>& allowed = request.allowed_tools;
    if (!allowed.empty() && std::ranges::count(allowed, name) == 0) continue;
    OrderedJson arguments = function["parameters"];
    move_references(arguments, std::string(is_list ? "/items" : "") + "/anyOf/" +
                                   std::to_string(calls.size()) + "/properties/arguments");
    arguments["type"] = "object";
    calls.push_back({{"type", "object"},
                     {"properties", {{"name", {{"const", name}}}, {"arguments", arguments}}},
                     {"required", {"name", "arguments"}}});
  }
  OrderedJson one{{"anyOf", std::move(calls)}};
  return is_list ? OrderedJson{{"type", "array"}, {"minItems", 1}, {"items", std::move(one)}} : one;
}

/// Returns whether the text begins with reasoning. Where the prompt leaves that to the model, its
/// end shall say so, or a constraint could never begin.
bool begin_reasoning(const ReasoningFormat& format, const ChatEncoder& encoder,
                     ChatRequest& request) {
  const bool continues = request.continue_final_message;
  if (begins_with_reasoning(format, request.prompt, continues)) return true;
  if (continues || trim(request.prompt).ends_with(format.end) ||
      request.variables->value("enable_thinking", OrderedJson()) == false)
    return false;
  request.prompt += format.begin;
  const std::vector<std::int32_t> ids = encoder.encode(format.begin);
  request.prompt_ids.insert(request.prompt_ids.end(), ids.begin(), ids.end());
  return true;
}

}  // namespace

void plan_output(const ServedChat& chat, ChatRequest& request, OutputPlan& plan) {
  SamplingParams& params = request.request.params;
  const auto [calls, reasoning] = chat.format;
  plan.format = chat.format;
  if (request.demands_calls())  // and no text, whose form the client may give
    params.constraint = {OutputConstraint::Kind::json_schema, {calls_schema(request).dump()}};
  const bool is_constrained = params.constraint.kind != OutputConstraint::Kind::none;
  if (is_constrained) {
    // As in vLLM, demanded calls are JSON whatever the model's own format is: a constraint is one
    // of texts, and most formats have special tokens, or arguments that are no JSON.
    plan.calls = {.body = CallBody::json,
                  .begins_bare = true,
                  .id_length = calls == nullptr ? 0 : calls->id_length};
    plan.format.calls = request.demands_calls() ? &plan.calls : nullptr;
  }
  if (reasoning == nullptr || (!is_constrained && request.thinking_budget < 0)) return;
  plan.reasoning = {
      .begin = reasoning->begin, .end = reasoning->end, .begins_inside = reasoning->begins_inside};
  if (is_constrained) plan.format.reasoning = &plan.reasoning;
  if (!begin_reasoning(*reasoning, chat.encoder, request)) return;
  // The tag alone: how the model breaks lines around it is not known before.
  const std::vector<std::int32_t> end = chat.encoder.encode(reasoning->end);
  if (is_constrained) params.constraint_starts_after.assign(end.begin(), end.end());
  params.thinking_budget = request.thinking_budget;
  params.end_thinking_ids.assign(end.begin(), end.end());
}

}  // namespace megatron
