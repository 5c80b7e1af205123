#include "megatron/server/api/chat_request.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/load_tokenizer.h"
#include "megatron/server/api/served_chat.h"
#include "megatron/server/api/served_model.h"
#include "megatron/server/generation_job.h"
#include "megatron/tokenizers/chat/json_values.h"

namespace megatron {
namespace {

/// Returns a member of an object, or the object itself, which has the same members in Responses.
BodyValue inner_of(const BodyValue& value, const char* member) {
  const auto inner = value.find(member);
  return inner ? *inner : value;
}

/// Reads a choice: a word or an object, in OpenAI's or Anthropic's names.
void read_tool_choice(ChatRequest& to, const BodyValue& choice) {
  static const std::map<std::string_view, ToolChoice> kChoices{
      {"none", ToolChoice::none},         {"auto", ToolChoice::automatic},
      {"required", ToolChoice::required}, {"any", ToolChoice::required},
      {"function", ToolChoice::named},    {"tool", ToolChoice::named}};
  const bool is_object = choice.json().is_object();
  std::string type = is_object ? choice["type"]->text() : choice->text();
  if (is_object && type == "allowed_tools") {
    const BodyValue allowed = inner_of(choice, "allowed_tools");
    for (const BodyValue& tool : allowed["tools"].elements())
      to.allowed_tools.push_back(inner_of(tool, "function")["name"]->text());
    type = allowed["mode"]->text();
  }
  const auto found = kChoices.find(type);
  const bool is_named = found != kChoices.end() && found->second == ToolChoice::named;
  if (found == kChoices.end() || (is_named && !is_object))
    throw UserError({choice->name(), "'" + type + "' is not in this version",
                     "use none, auto, required or any, a function, or allowed_tools"});
  to.tool_choice = found->second;
  if (is_named) to.allowed_tools = {inner_of(choice, "function")["name"]->text()};
  if (!is_object) return;
  if (const auto disabled = choice.find("disable_parallel_tool_use"))
    to.parallel_tool_calls = !(*disabled)->boolean();
}

/// Checks the choice against the tools. Of some allowed tools that the model may call, it is told
/// of no others.
void check_tool_choice(ChatRequest& to, const std::string& source) {
  const auto name_of = [](const OrderedJson& tool) {
    return tool["function"]["name"].get<std::string>();
  };
  for (const std::string& name : to.allowed_tools)
    if (std::ranges::count(*to.tools, name, name_of) == 0)
      throw UserError({source + ": field 'tool_choice'", "there is no tool '" + name + "'",
                       "name one of 'tools'"});
  if (to.tool_choice == ToolChoice::automatic && !to.allowed_tools.empty())
    std::erase_if(to.tools->get_ref<OrderedJson::array_t&>(), [&](const OrderedJson& tool) {
      return std::ranges::count(to.allowed_tools, name_of(tool)) == 0;
    });
  if (!to.tools->empty()) return;
  if (to.tool_choice == ToolChoice::required)
    throw UserError({source + ": field 'tool_choice'", "there are no tools", "give 'tools'"});
  to.tool_choice = ToolChoice::none;
}

/// Reads a tool: a function, whose members Responses have beside its type.
void read_tool(ChatRequest& to, const BodyValue& tool) {
  if (const std::string type = tool["type"]->text(); type != "function")
    throw UserError({tool->place() + ": a tool of type '" + type + "'", "is not in this version",
                     "give functions"});
  const BodyValue function = inner_of(tool, "function");
  const auto parameters = function.find("parameters");
  to.tools->push_back(tool_json(function, parameters ? parameters->ordered() : OrderedJson()));
}

void set_thinking_budget(ChatRequest& to, const BodyValue& budget) {
  to.thinking_budget = budget->integer();
  if (to.thinking_budget < -1)
    throw UserError({budget->name(), std::to_string(to.thinking_budget),
                     "give at least 0, or -1 for no limit"});
}

auto flag(bool ChatRequest::*member) {
  return [member](ChatRequest& to, const BodyValue& value) { to.*member = value->boolean(); };
}

/// Members that mean nothing to a server of one model.
const std::set<std::string_view> kIgnored{
    "service_tier",         "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prompt_cache_options", "cache_control",     "verbosity",        "prediction",
    "max_tool_calls",       "inference_geo",     "diagnostics",      "speed"};

/// The members of OpenAI's APIs, and the extensions of vLLM and DeepSeek, which every API takes.
const MemberReaders kSharedReaders{
    {"tools",
     [](auto& to, auto& list) {
       for (const BodyValue& tool : list.elements()) read_tool(to, tool);
     }},
    {"tool_choice", read_tool_choice},
    {"stream_options",
     [](auto& to, auto& value) {
       value->object();
       if (const auto usage = value.find("include_usage"))
         to.include_usage = usage->cursor().boolean();
     }},
    {"return_token_ids", flag(&ChatRequest::return_token_ids)},
    {"parallel_tool_calls", flag(&ChatRequest::parallel_tool_calls)},
    {"add_generation_prompt", flag(&ChatRequest::add_generation_prompt)},
    {"continue_final_message", flag(&ChatRequest::continue_final_message)},
    {"chat_template_kwargs",
     [](auto& to, auto& value) {
       value->object();
       *to.template_kwargs = value.ordered();
     }},
    {"documents",
     [](auto& to, auto& value) {
       value->array();
       (*to.variables)["documents"] = value.ordered();
     }},
    {"reasoning_effort", set_effort},
    {"thinking_token_budget", set_thinking_budget},
    {"thinking",
     [](auto& to, auto& value) {
       const std::string type = value["type"]->text();
       if (type != "adaptive") set_thinking(to, type != "disabled");
       if (const auto budget = value.find("budget_tokens")) set_thinking_budget(to, *budget);
     }},
    {"echo",
     [](auto&, auto& value) {
       if (value->boolean())
         throw UserError({value->name(), "an answer does not repeat the messages",
                          "leave it out, or use /v1/completions"});
     }},
    {"best_of", refuse_member},
    {"num_beams", refuse_member},
    {"prompt", refuse_member},
    {"store",
     [](auto&, auto& value) {
       if (value->boolean())
         throw UserError({value->name(), "the server keeps no answers", "leave it out"});
     }},
};

/// Reads what the engine needs, the texts to generate aside.
CompletionRequest completion_of(const OrderedJson& sampling, const std::string& source) {
  const std::string text = sampling.dump();
  return read_completion(JsonCursor(parse_json(text, source), source), text);
}

OrderedJson ordered_json(const std::string& text, const std::string& source) {
  parse_json(text, source);  // whose errors name the source
  return OrderedJson::parse(text);
}

/// Cuts the text of a prompt behind the content of its last message, as transformers does.
std::string open_final_message(std::string prompt, const OrderedJson& messages) {
  const OrderedJson last = messages.empty() ? OrderedJson() : messages.back();
  const std::string content = last.is_object() ? last.value("content", "") : "";
  const std::size_t begin = content.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos)
    throw UserError({"field 'continue_final_message'", "the last message has no text", ""});
  const std::size_t end = content.find_last_not_of(" \t\r\n") + 1;
  const std::string trimmed = content.substr(begin, end - begin), behind = content.substr(end);
  const std::size_t place = prompt.rfind(trimmed);
  if (place == std::string::npos)
    throw UserError({"field 'continue_final_message'",
                     "the chat template does not show the last message as it is", "leave it out"});
  std::size_t cut = place + trimmed.size();
  if (prompt.compare(cut, behind.size(), behind) == 0) cut += behind.size();
  prompt.resize(cut);
  return prompt;
}

}  // namespace

BodyValue BodyValue::operator[](const std::string& key) const {
  JsonCursor member = value_[key];
  return {std::move(member), (*ordered_)[key]};
}

std::optional<BodyValue> BodyValue::find(const std::string& key) const {
  std::optional<JsonCursor> member = value_.find(key);
  if (!member || (*member)->is_null()) return std::nullopt;
  return BodyValue(*std::move(member), (*ordered_)[key]);
}

std::string BodyValue::text_or(const std::string& key, const std::string& otherwise) const {
  const auto member = find(key);
  return member ? (*member)->text() : otherwise;
}

std::vector<BodyValue> BodyValue::elements() const {
  std::vector<BodyValue> all;
  for (JsonCursor& one : value_.elements())
    all.emplace_back(std::move(one), (*ordered_)[all.size()]);
  return all;
}

void refuse_member(ChatRequest&, const BodyValue& value) {
  throw UserError({value->name(), "is not in this version", "leave it out"});
}

ChatRequest read_chat_request(const std::string& body, const MemberReaders& readers) {
  const std::string source = "request body";
  const JsonCursor cursor(parse_json(body, source), source);
  ChatRequest read{.body = OrderedJson::parse(body)};
  for (OrderedJsonValue* list : {&read.messages, &read.tools}) **list = OrderedJson::array();
  for (OrderedJsonValue* set : {&read.variables, &read.template_kwargs, &read.sampling})
    **set = OrderedJson::object();
  const BodyValue value(cursor, *read.body);
  std::vector<std::pair<const MemberReaders::mapped_type*, BodyValue>> own;
  for (const auto& [key, json] : cursor.object().items()) {
    if (json.is_null() || kIgnored.contains(key)) continue;
    const auto reader = readers.find(key), shared = kSharedReaders.find(key);
    if (reader != readers.end())
      own.emplace_back(&reader->second, value[key]);
    else if (shared != kSharedReaders.end())
      own.emplace_back(&shared->second, value[key]);
    else
      (*read.sampling)[key] = value[key].ordered();
  }
  (*read.sampling)["prompt"] = "";
  const OrderedJson given = *read.sampling;
  for (const auto& [reader, member] : own) (*reader)(read, member);
  // max_tokens and others yield to their newer names, and are read all the same.
  if (std::ranges::any_of(given.items(), [&](const auto& member) {
        return read.sampling->at(member.key()) != member.value();
      }))
    completion_of(given, source);
  read.is_open_ended = !read.sampling->contains("max_tokens");
  if (!read.sampling->contains("add_special_tokens"))  // templates write them
    (*read.sampling)["add_special_tokens"] = false;
  read.request = completion_of(*read.sampling, source);
  check_tool_choice(read, source);
  if (read.continue_final_message) read.add_generation_prompt = false;
  return read;
}

std::string content_text(const BodyValue& content) {
  if (content.json().is_null()) return "";
  if (!content.json().is_array()) return content->text();
  std::string text;
  for (const BodyValue& part : content.elements()) {
    if (!text.empty()) text += '\n';
    if (part.json().is_string()) {
      text += part->text();
      continue;
    }
    const std::string type = part["type"]->text();
    if (type == "refusal")
      text += part["refusal"]->text();
    else if (type == "text" || type == "input_text" || type == "output_text")
      text += part["text"]->text();
    else
      throw UserError({part->place() + ": a part of type '" + type + "'",
                       "the model reads text alone", "give parts of text"});
  }
  return text;
}

OrderedJson tool_call_json(const std::string& id, const std::string& name,
                           const BodyValue& arguments) {
  OrderedJson object = arguments.ordered();
  if (object.is_string()) {
    const std::string text = object.get<std::string>();
    object = text.empty() ? OrderedJson::object() : ordered_json(text, arguments->name());
  }
  if (!object.is_object()) throw UserError({arguments->name(), "is no JSON object", ""});
  return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", object}}}};
}

OrderedJson tool_json(const BodyValue& function, const OrderedJson& parameters) {
  OrderedJson json{{"name", function["name"]->text()}};
  if (function.find("description")) json["description"] = function["description"]->text();
  if (!parameters.is_null() && !parameters.is_object())
    throw UserError(
        {function->place() + ": the schema of a tool's parameters", "is no JSON object", ""});
  if (const OrderedJson type =
          parameters.is_null() ? OrderedJson() : parameters.value("type", OrderedJson());
      !type.is_null() && type != "object")
    throw UserError({function->place() + ": the schema of a tool's parameters",
                     "is of type " + type.dump(), "give \"type\": \"object\""});
  json["parameters"] = parameters.is_null()
                           ? OrderedJson{{"type", "object"}, {"properties", OrderedJson::object()}}
                           : parameters;
  return {{"type", "function"}, {"function", std::move(json)}};
}

void append_tool_call(OrderedJson& messages, OrderedJson call) {
  if (messages.empty() || messages.back()["role"] != "assistant")
    messages.push_back({{"role", "assistant"}, {"content", ""}});
  messages.back()["tool_calls"].push_back(std::move(call));
}

void set_output_format(ChatRequest& to, const BodyValue& format) {
  OrderedJson made{{"type", format["type"]->text()}};
  if (made["type"] == "json_schema") made["json_schema"]["schema"] = format["schema"].ordered();
  (*to.sampling)["response_format"] = std::move(made);
}

void set_thinking(ChatRequest& to, bool thinks) {
  // Qwen's, GLM's and others' templates read the first, DeepSeek's the second.
  for (const char* name : {"enable_thinking", "thinking"}) (*to.variables)[name] = thinks;
}

void set_max_tokens(ChatRequest& to, const BodyValue& count) {
  if (count->integer() < 0)
    throw UserError({count->name(), "is " + std::to_string(count->integer()), "give 0 or more"});
  (*to.sampling)["max_tokens"] = count->integer();
}

void set_effort(ChatRequest& to, const BodyValue& effort) {
  const std::string text = effort->text();
  set_thinking(to, text != "none");
  if (text != "none") (*to.variables)["reasoning_effort"] = text;
}

const ServedChat& chat_of(const ServedModel& model) {
  if (model.tokenizer.has_encoder())
    throw UserError({"model '" + model.name + "'",
                     "it has an encoder and a decoder, which answer single prompts and continue no "
                     "conversation",
                     "use /v1/completions"});
  if (model.chat != nullptr) return *model.chat;
  throw UserError({"model '" + model.name + "'", "its folder has no chat template",
                   "give --chat-template FILE, or use /v1/completions"});
}

void render_prompt(const ServedModel& model, ChatRequest& request) {
  const ServedChat& chat = chat_of(model);
  const auto value_of = [](const OrderedJson& json) {
    return chat::read_json_value(json.dump(), "request body");
  };
  const bool has_tools = request.tool_choice != ToolChoice::none;
  ChatInput input{.messages = value_of(*request.messages),
                  .tools = has_tools ? value_of(*request.tools) : chat::Value(),
                  .add_generation_prompt = request.add_generation_prompt,
                  .variables = chat.special_tokens};
  request.variables->update(*request.template_kwargs);
  for (const auto& [name, value] : request.variables->items())
    input.variables.emplace_back(name, value_of(value));
  request.prompt = (has_tools ? chat.with_tools : chat.plain).render(input);
  if (request.continue_final_message)
    request.prompt = open_final_message(std::move(request.prompt), *request.messages);
  check_sizes(model, request.request.params.n, {request.prompt});
  const auto ids = chat.encoder.encode(request.prompt, request.request.add_special_tokens);
  request.prompt_ids.assign(ids.begin(), ids.end());
  request.request.truncate(request.prompt_ids);
}

}  // namespace megatron
