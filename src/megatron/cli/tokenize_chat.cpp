#include "megatron/cli/tokenize_chat.h"

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/tokenizers/chat/json_values.h"
#include "megatron/tokenizers/tokenizer.h"
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

std::string text_member(const chat::Value& message, const char* key) {
  const chat::Value* value = message.is(chat::Kind::dict) ? message.as_dict().find(key) : nullptr;
  if (value == nullptr || !value->is(chat::Kind::text))
    throw UserError({std::string("each message must be an object with the text \"") + key + "\"",
                     "", "--tokenizer-prompt-format knows no other contents"});
  return value->as_text();
}

Conversation conversation_of(const ChatInput& input) {
  if (!input.tools.is_none() || !input.documents.is_none() || !input.variables.empty())
    throw UserError({"--tokenizer-prompt-format reads only the messages of a line", "",
                     "leave its other members out"});
  Conversation conversation;
  for (const chat::Value& message : input.messages.items())
    conversation.push_back({text_member(message, "role"), text_member(message, "content")});
  return conversation;
}

}  // namespace

ConversationRenderer::ConversationRenderer(ConversationOptions options)
    : options_(std::move(options)), files_(chat_files(options_.tokenizer)) {
  const bool has_format = !options_.tokenizer.tokenizer_prompt_format.empty();
  if (options_.needs_ids || has_format) {
    tokenizer_ = make_tokenizer(options_.tokenizer);
    encoder_ = std::make_unique<ChatEncoder>(*tokenizer_);
  }
  if (has_format) {
    if (!options_.tokenizer.chat_template.empty() || !options_.tools.empty())
      throw UserError({"--chat-template and --tools do not go with --tokenizer-prompt-format", "",
                       "leave them out"});
    format_ = std::make_unique<const ConversationText>(/*sft_format=*/"", *tokenizer_, files_);
    return;
  }
  if (!options_.tools.empty()) {
    defaults_.tools = chat::read_json_value(read_file(options_.tools), options_.tools);
    require_list(defaults_.tools, options_.tools);
  }
  defaults_.add_generation_prompt = options_.add_generation_prompt;
  defaults_.variables = special_token_variables(files_.folder, tokenizer_.get());
  chat_template(!defaults_.tools.is_none());
}

const ChatTemplate& ConversationRenderer::chat_template(bool has_tools) const {
  auto found = templates_.find(has_tools);
  if (found == templates_.end())
    found = templates_.emplace(has_tools, open_chat_template(files_, has_tools)).first;
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
  if (format_)
    return format_->text(format_->prepare(conversation_of(input)), "the conversation",
                         options_.add_generation_prompt);
  return chat_template(!input.tools.is_none()).render(input);
}

}  // namespace megatron
