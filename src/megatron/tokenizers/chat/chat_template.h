// Chat templates: the Jinja that published models use to turn a conversation into one text, as
// transformers' apply_chat_template() renders it.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/tokenizers/chat/template_error.h"
#include "megatron/tokenizers/chat/value.h"

namespace megatron {

/// What a template sees besides its own functions.
struct ChatInput {
  chat::Value messages;   ///< a list of dicts
  chat::Value tools;      ///< a list of JSON schemas, or None
  chat::Value documents;  ///< a list of dicts, or None
  bool add_generation_prompt = false;
  /// More variables, such as bos_token or enable_thinking. They win over those above.
  std::vector<std::pair<std::string, chat::Value>> variables;
};

/// A parsed template. Immutable and thread-safe.
class ChatTemplate {
 public:
  /// Parses `source`. Throws a UserError that names `name` and the line of a mistake.
  ChatTemplate(std::string_view source, std::string name);
  ChatTemplate(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Returns the text of a conversation. Throws a UserError that names the template and its line
  /// where the template fails, refuses the conversation or exceeds `limits`. `now` is the time that
  /// the template's dates tell.
  std::string render(const ChatInput& input, std::time_t now = std::time(nullptr),
                     const chat::RenderLimits& limits = {}) const;

 private:
  struct Body;
  std::unique_ptr<Body> body_;
  std::string name_;
};

}  // namespace megatron
