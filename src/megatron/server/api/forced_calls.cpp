#include "megatron/server/api/forced_calls.h"

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/server/api/served_chat.h"

namespace megatron {
namespace {

/// Of OpenAI's channels, which output_format.h gives no tags.
constexpr std::string_view kChannelReasoningEnd = "<|end|>",
                           kFinalChannel = "<|channel|>final<|message|>";

bool demands_call(const ChatRequest& request) {
  return request.tool_choice == ToolChoice::required || request.tool_choice == ToolChoice::named;
}

/// Moves the definitions of a schema to the schema around it, where its references point to.
void hoist_definitions(OrderedJson& schema, OrderedJson& around) {
  for (const char* name : {"$defs", "definitions"}) {
    if (!schema.contains(name)) continue;
    around[name].update(schema[name]);
    schema.erase(name);
  }
}

/// Returns whether the model reasons before the text that the prompt asks for.
bool reasons_first(const ReasoningFormat& format, const ChatRequest& request) {
  const std::size_t begin = request.prompt.rfind(format.begin),
                    end = request.prompt.rfind(format.end);
  const bool has_end = end != std::string::npos;
  if (begin != std::string::npos && (!has_end || begin > end) &&
      request.prompt.find_first_not_of(" \t\r\n", begin + format.begin.size()) == std::string::npos)
    return true;
  if (has_end &&
      request.prompt.find_first_not_of(" \t\r\n", end + format.end.size()) == std::string::npos)
    return false;
  const auto asked = request.variables.find("enable_thinking");
  return format.begins_inside || (asked != request.variables.end() && *asked == true);
}

}  // namespace

OrderedJson call_schema(const ChatRequest& request) {
  OrderedJson root = OrderedJson::object(), calls = OrderedJson::array();
  for (const OrderedJson& tool : request.tools) {
    const OrderedJson& function = tool["function"];
    if (request.tool_choice == ToolChoice::named && function["name"] != request.tool_name) continue;
    OrderedJson arguments = function["parameters"];
    hoist_definitions(arguments, root);
    calls.push_back(
        {{"type", "object"},
         {"properties", {{"name", {{"const", function["name"]}}}, {"arguments", arguments}}},
         {"required", {"name", "arguments"}},
         {"additionalProperties", false}});
  }
  OrderedJson one = calls.size() == 1 ? calls[0] : OrderedJson{{"anyOf", calls}};
  if (request.tool_choice == ToolChoice::required && request.parallel_tool_calls)
    one = {{"type", "array"}, {"minItems", 1}, {"items", std::move(one)}};
  root.update(one);
  return root;
}

void plan_output(const ServedChat& chat, ChatRequest& request, OutputPlan& plan) {
  const auto ids_of = [&](std::string_view text) {
    const auto ids = chat.encoder.encode(text);
    return std::vector<std::int64_t>(ids.begin(), ids.end());
  };
  SamplingParams& params = request.request.params;
  plan.format = chat.format;
  const bool is_harmony = plan.format.is_harmony, demands = demands_call(request);
  const ReasoningFormat* reasoning = plan.format.reasoning;
  if (request.thinking_budget && (is_harmony || reasoning != nullptr)) {
    params.thinking_budget = *request.thinking_budget;
    params.end_thinking_ids = ids_of(is_harmony ? kChannelReasoningEnd : reasoning->end);
  }
  if (demands && params.constraint.kind != OutputConstraint::Kind::none)
    throw UserError({"request body: fields 'tool_choice' and 'response_format'",
                     "a call of a tool cannot have another format", "leave one of them out"});
  if (demands && is_harmony) {
    OrderedJson schema = call_schema(request);
    if (schema.contains("items")) schema = OrderedJson(schema["items"]);
    if (schema.contains("anyOf"))
      throw UserError({"request body: field 'tool_choice'",
                       "the model's format of calls needs one tool", "name a function"});
    const OrderedJson& properties = schema["properties"];
    plan.begin = "<|channel|>commentary to=functions." +
                 properties["name"]["const"].get<std::string>() + " <|constrain|>json<|message|>";
    OrderedJson arguments = properties["arguments"];
    for (const char* name : {"$defs", "definitions"})
      if (schema.contains(name)) arguments[name] = schema[name];
    params.constraint = {OutputConstraint::Kind::json_schema, {arguments.dump()}};
    const std::vector<std::int64_t> ids = ids_of(plan.begin);
    request.prompt_ids.insert(request.prompt_ids.end(), ids.begin(), ids.end());
    return;
  }
  if (demands) {
    // The calls stand as JSON without a tag, because the schema begins with the text.
    plan.forced = {.body = CallBody::json,
                   .begin = "<tool_call>",
                   .end = "</tool_call>",
                   .begins_bare = true,
                   .id_length = plan.format.calls == nullptr ? 0 : plan.format.calls->id_length};
    plan.format.calls = &plan.forced;
    params.constraint = {OutputConstraint::Kind::json_schema, {call_schema(request).dump()}};
  }
  if (params.constraint.kind == OutputConstraint::Kind::none) return;
  if (is_harmony)
    params.constraint_starts_after = ids_of(kFinalChannel);
  else if (reasoning != nullptr && reasons_first(*reasoning, request))
    params.constraint_starts_after = ids_of(reasoning->end);
}

}  // namespace megatron
