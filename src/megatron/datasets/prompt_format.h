// The text around the messages of a conversation, and which of its tokens are trained on: the
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

/// Immutable and thread-safe.
class PromptFormat {
 public:
  /// The format "default" is the chat template in the tokenizer's folder. Throws a UserError if the
  /// format does not exist, or if the tokenizer has no token for padding.
  PromptFormat(const std::string& name, std::shared_ptr<const Tokenizer> tokenizer,
               const fs::path& folder = {});
  ~PromptFormat();

  struct Tokens {
    std::vector<std::int64_t> ids;
    std::vector<std::int64_t> targets;  ///< the ids of answers, otherwise kIgnoredLabel; with the
                                        ///< format "default", all ids
  };
  /// Returns the tokens of a conversation. `where` names it in UserErrors: roles other than system,
  /// user, tool and assistant, an answer without text or without a question before it, and a token
  /// that spans two messages.
  Tokens tokenize(const Conversation& conversation, const std::string& where) const;
  std::int64_t pad() const { return pad_; }

 private:
  struct Kind;
  struct Template;
  const Kind* kind_ = nullptr;
  std::unique_ptr<const Template> template_;  ///< of the format "default"
  std::shared_ptr<const Tokenizer> tokenizer_;
  std::int64_t pad_ = -1;
};

}  // namespace megatron
