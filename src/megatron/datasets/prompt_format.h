// The text around the messages of a conversation, and which of its tokens are trained on: the named
// formats of Megatron-LM's SFTTokenizer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/conversations.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// The label of a token that is not trained on.
inline constexpr std::int64_t kIgnoredLabel = -100;

/// Returns the names of the formats, as --sft-tokenizer-prompt-format takes them.
std::vector<std::string> prompt_format_names();

/// Immutable and thread-safe.
class PromptFormat {
 public:
  /// Throws a UserError if the format does not exist, or if the tokenizer has no token for padding.
  PromptFormat(const std::string& name, std::shared_ptr<const Tokenizer> tokenizer);

  struct Tokens {
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> targets;  ///< the ids of answers, otherwise kIgnoredLabel
  };
  /// Returns the tokens of a conversation. `where` names it in UserErrors: roles other than system,
  /// user, tool and assistant, an answer without text or without a question before it, and a token
  /// that spans two messages.
  Tokens tokenize(const Conversation& conversation, const std::string& where) const;
  /// Returns the text of a message in this format.
  std::string text(const Message& message) const;
  std::int64_t pad() const { return pad_; }

 private:
  struct Kind;
  const Kind* kind_;
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::int64_t pad_ = -1;
};

}  // namespace megatron
