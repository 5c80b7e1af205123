// Chat templates. The input is a template; it renders a short conversation.
#include "megatron/tokenizers/chat/chat_template.h"

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/tokenizers/chat/json_values.h"

namespace megatron::fuzz {
namespace {

ChatInput short_conversation() {
  ChatInput chat;
  chat.messages = chat::read_json_value(
      R"([{"role": "system", "content": " Be brief.\n"},)"
      R"({"role": "user", "content": [{"type": "text", "text": "Hi <é> 'you'"}]},)"
      R"({"role": "assistant", "content": null, "tool_calls": [{"type": "function", "function":)"
      R"({"name": "f", "arguments": {"x": 1.5, "y": [true, null, "z"]}}}]},)"
      R"({"role": "tool", "content": "42"}])",
      "messages");
  chat.tools = chat::read_json_value(
      R"([{"type": "function", "function": {"name": "f", "parameters": {"x": {}}}}])", "tools");
  chat.add_generation_prompt = true;
  chat.variables = {{"bos_token", chat::Value::text("<s>")},
                    {"eos_token", chat::Value::text("</s>")}};
  return chat;
}

}  // namespace

void parse_chat_template(std::string_view input) {
  const ChatTemplate parsed(input, "template");
  static const ChatInput conversation = short_conversation();
  parsed.render(conversation, 1'700'000'000, {.work = 200'000, .value_bytes = 1 << 16});
}

}  // namespace megatron::fuzz
