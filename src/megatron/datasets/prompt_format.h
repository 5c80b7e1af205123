// The tokens of conversations, and which of them are trained on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "megatron/datasets/conversation_text.h"

namespace megatron {

/// The label of a token that is not trained on.
inline constexpr std::int64_t kIgnoredLabel = -100;

/// Immutable and thread-safe.
class PromptFormat {
 public:
  /// The arguments are those of ConversationText. Throws its UserErrors, and one if the tokenizer
  /// has no token for padding.
  PromptFormat(const std::string& sft_format, std::shared_ptr<const Tokenizer> tokenizer,
               const ChatFiles& files = {});

  struct Tokens {
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> targets;  ///< the ids of answers, otherwise kIgnoredLabel; with the
                                        ///< format "default", all ids
  };
  /// Returns the tokens of a conversation. `where` names it in UserErrors: roles other than system,
  /// user, tool and assistant, an answer without text or without a question before it, and a token
  /// that spans two messages. Formats of MultimodalTokenizer refuse tools, every message without
  /// text and images in answers, but not an answer without a question.
  Tokens tokenize(const Conversation& conversation, const std::string& where) const;
  std::int64_t pad() const { return pad_; }
  /// Returns a text that differs for objects that may give other tokens with the same tokenizer.
  const std::string& description() const { return text_.description(); }

 private:
  void check(const Conversation& conversation, std::size_t turn, const std::string& where) const;

  ConversationText text_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::int64_t pad_ = -1;
};

}  // namespace megatron
