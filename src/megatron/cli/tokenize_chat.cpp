#include "megatron/cli/tokenize_chat.h"

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/tokenizers/chat/json_values.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

void require_list(const chat::Value& value, const std::string& what) {
  if (!value.is(chat::Kind::list))
    throw UserError({what + " must be a list", chat::type_name(value), ""});
}

/// Sets what an object of a line gives instead of the defaults.
void read_members(const chat::Value& object, ChatInput& input) {
  for (const auto& [key, value] : object.as_dict().entries()) {
    const std::string& name = key.as_text();
    if (name == "messages") {
      input.messages = value;
    } else if (name == "tools") {
      input.tools = value;
    } else if (name == "documents") {
      input.documents = value;
    } else {
      input.variables.emplace_back(name, value);
    }
  }
  if (!input.tools.is_none()) require_list(input.tools, "\"tools\"");
}

}  // namespace

ConversationRenderer::ConversationRenderer(ConversationOptions options)
    : options_(std::move(options)), folder_(tokenizer_folder(options_.tokenizer)) {
  if (options_.needs_ids) {
    tokenizer_ = make_tokenizer(options_.tokenizer);
    encoder_ = std::make_unique<ChatEncoder>(*tokenizer_);
  }
  if (!options_.tools.empty()) {
    defaults_.tools = chat::read_json_value(read_file(options_.tools), options_.tools);
    require_list(defaults_.tools, options_.tools);
  }
  defaults_.add_generation_prompt = options_.add_generation_prompt;
  defaults_.variables = special_token_variables(folder_, tokenizer_.get());
  chat_template(!defaults_.tools.is_none());
}

const ChatTemplate& ConversationRenderer::chat_template(bool has_tools) const {
  auto found = templates_.find(has_tools);
  if (found == templates_.end())
    found = templates_
                .emplace(has_tools, open_chat_template(folder_, options_.chat_template, has_tools))
                .first;
  return found->second;
}

std::string ConversationRenderer::render(std::string_view json) const {
  const auto replaced = replace_invalid_utf8(json);
  const chat::Value line = chat::read_json_value(replaced ? *replaced : json, "the conversation");
  ChatInput input = defaults_;
  if (line.is(chat::Kind::dict)) {
    read_members(line, input);
  } else {
    input.messages = line;
  }
  require_list(input.messages, "the messages of a conversation");
  if (input.messages.items().empty())
    throw UserError({"a conversation has no messages", "", "give at least one message"});
  return chat_template(!input.tools.is_none()).render(input);
}

}  // namespace megatron
