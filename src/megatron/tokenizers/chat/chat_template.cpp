#include "megatron/tokenizers/chat/chat_template.h"

#include "megatron/base/error.h"
#include "megatron/tokenizers/chat/evaluator.h"
#include "megatron/tokenizers/chat/syntax.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

[[noreturn]] void fail(const std::string& name, const chat::TemplateError& error) {
  throw UserError({name + ", line " + std::to_string(std::max(error.line(), 1)), error.what(), ""});
}

}  // namespace

struct ChatTemplate::Body {
  chat::Nodes nodes;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string name)
    : body_(std::make_unique<Body>()), name_(std::move(name)) {
  if (replace_invalid_utf8(source)) throw UserError({name_ + " is not valid UTF-8", "", ""});
  try {
    body_->nodes = chat::parse_template(source);
  } catch (const chat::TemplateError& error) {
    fail(name_, error);
  }
}

ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

std::string ChatTemplate::render(const ChatInput& input, std::time_t now,
                                 const chat::RenderLimits& limits) const {
  std::vector<std::pair<std::string, chat::Value>> variables = {
      {"messages", input.messages},
      {"tools", input.tools},
      {"documents", input.documents},
      {"add_generation_prompt", chat::Value::boolean(input.add_generation_prompt)}};
  variables.insert(variables.end(), input.variables.begin(), input.variables.end());
  try {
    return chat::Evaluator(limits, now).render(body_->nodes, std::move(variables));
  } catch (const chat::TemplateError& error) {
    fail(name_, error);
  }
}

}  // namespace megatron
