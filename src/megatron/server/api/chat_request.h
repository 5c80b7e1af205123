// What a chat API asks for, in one form for all of them (chat_apis.h): OpenAI's messages and tools,
// which chat templates read, and the settings of sampling.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/base/json_value.h"
#include "megatron/inference/completions/completion_request.h"

namespace megatron {

struct ServedChat;
struct ServedModel;

enum class ToolChoice : std::uint8_t {
  none,       ///< the model is not told of the tools
  automatic,  ///< the model may call tools
  required,   ///< the answer is a call, or several
  named       ///< the answer is a call of the one allowed tool
};

struct ChatRequest {
  /// Sampling, and how the answer is sent. Its prompts are unused.
  CompletionRequest request = {};
  OrderedJsonValue messages;  ///< a list
  OrderedJsonValue tools;     ///< each {"type": "function", "function": {…}}
  ToolChoice tool_choice = ToolChoice::automatic;
  std::vector<std::string> allowed_tools = {};  ///< names of tools that may be called; none: all
  bool parallel_tool_calls = true;
  bool is_open_ended = false;  ///< a text without max_tokens may fill the model's context
  bool include_usage = false;  ///< the stream ends with the numbers of tokens
  bool return_token_ids = false;
  std::int64_t thinking_budget = -1;  ///< most tokens of reasoning; −1: there is no limit
  bool add_generation_prompt = true;
  bool continue_final_message = false;  ///< the answer goes on with the last message
  /// More variables of the chat template, such as reasoning_effort, and those that the client gives
  /// itself, which replace them.
  OrderedJsonValue variables, template_kwargs;
  std::string prompt = {};  ///< set by render_prompt()
  std::vector<std::int64_t> prompt_ids = {};
  OrderedJsonValue body;  ///< as the client sent it
  /// Members of the body in the names of read_completion(), which `request` is read from.
  OrderedJsonValue sampling;
  std::string id = {};  ///< names the answer and its calls; "": random names

  /// Returns whether the answer is calls alone.
  bool demands_calls() const {
    return tool_choice == ToolChoice::required || tool_choice == ToolChoice::named;
  }
};

/// A value of a body with the same value in the client's order of keys, which templates print.
class BodyValue {
 public:
  BodyValue(JsonCursor value, const OrderedJson& ordered)
      : value_(std::move(value)), ordered_(&ordered) {}
  /// The cursor, whose accessors check types.
  const JsonCursor* operator->() const { return &value_; }
  const JsonCursor& cursor() const { return value_; }
  const Json& json() const { return *value_; }
  const OrderedJson& ordered() const { return *ordered_; }

  /// Returns a member; UserError if it is missing.
  BodyValue operator[](const std::string& key) const;
  /// Returns nullopt if the member is missing or null.
  std::optional<BodyValue> find(const std::string& key) const;
  /// Returns the text of a member, or `otherwise` if it is missing or null.
  std::string text_or(const std::string& key, const std::string& otherwise = {}) const;
  std::vector<BodyValue> elements() const;

 private:
  JsonCursor value_;
  const OrderedJson* ordered_;
};

/// How an API reads its members. A member that has no reader is one of read_completion().
using MemberReaders =
    std::map<std::string_view, std::function<void(ChatRequest&, const BodyValue&)>>;
/// The reader of a member that has no meaning for conversations.
void refuse_member(ChatRequest&, const BodyValue& value);

/// Reads a body with an API's readers and those that all APIs share. UserError that names the
/// member which is unknown, of a wrong type or out of range.
ChatRequest read_chat_request(const std::string& body, const MemberReaders& readers);

/// Returns a text, or the texts of content parts, each in a line. UserError for other parts.
std::string content_text(const BodyValue& content);
/// Returns {"id", "type": "function", "function": {"name", "arguments"}}. UserError unless
/// `arguments`, an object or the text of one, is that.
OrderedJson tool_call_json(const std::string& id, const std::string& name,
                           const BodyValue& arguments);
/// Returns {"type": "function", "function": {…}}; `parameters` is null if there are none.
OrderedJson tool_json(const BodyValue& function, const OrderedJson& parameters);
/// Appends a call to the message of the assistant that ends `messages`, or to a new one.
void append_tool_call(OrderedJson& messages, OrderedJson call);
/// Reads the format of the text, {"type", "schema"}. Its schema keeps the order of keys.
void set_output_format(ChatRequest& to, const BodyValue& format);
/// Sets the variables that templates read to choose whether the model thinks.
void set_thinking(ChatRequest& to, bool thinks);
/// Sets reasoning_effort; "none" is no thinking.
void set_effort(ChatRequest& to, const BodyValue& effort);
/// Reads a number of new tokens, which has names of its own in some APIs.
void set_max_tokens(ChatRequest& to, const BodyValue& count);

/// Returns the chat template of the model. UserError when it has none.
const ServedChat& chat_of(const ServedModel& model);
/// Renders the prompt. UserError when the template refuses the messages.
void render_prompt(const ServedModel& model, ChatRequest& request);

}  // namespace megatron
