// Renders the conversations of `megatron tokenize --chat`.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/tokenizer_config.h"
#include "megatron/datasets/conversation_text.h"
#include "megatron/tokenizers/chat/chat_encoder.h"
#include "megatron/tokenizers/chat/chat_files.h"

namespace megatron {

struct ConversationOptions {
  TokenizerConfig tokenizer;
  std::string tools;
  bool add_generation_prompt = false;
  bool needs_ids = false;  ///< whether encode() is called
};

/// Renders JSON conversations as texts and ids, with the model's chat template or with the format
/// of MultimodalTokenizer.
class ConversationRenderer {
 public:
  explicit ConversationRenderer(ConversationOptions options);

  /// Returns the text of a JSON list of messages, or of an object with "messages", whose other
  /// members are variables of the template. Throws a UserError.
  std::string render(std::string_view json) const;
  std::vector<std::int32_t> encode(std::string_view text) const { return encoder_->encode(text); }

 private:
  const ChatTemplate& chat_template(bool has_tools) const;

  ConversationOptions options_;
  ChatFiles files_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatEncoder> encoder_;
  std::unique_ptr<const ConversationText> format_;  ///< that of --tokenizer-prompt-format
  ChatInput defaults_;
  mutable std::map<bool, ChatTemplate> templates_;  ///< without and with tools
};

}  // namespace megatron
