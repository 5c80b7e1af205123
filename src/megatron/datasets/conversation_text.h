// The text around the messages of a conversation: the formats of Megatron-LM's SFTTokenizer and
// MultimodalTokenizer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/datasets/conversations.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {

/// A format.
struct PromptKind {
  std::string_view name;
  /// Returns the text of a message; null: the chat template of the tokenizer writes the text.
  std::string (*message)(const Message& message, const std::string& eos) = nullptr;
  /// The beginning of an answer, behind the last message.
  const char* answer_begin = "";
  /// Number of tokens at the beginning of an answer that are not trained on; none: the format is
  /// not for training.
  std::optional<std::size_t> assistant_prefix = 0;
  /// Fills samples, or <unk> does; null: the tokenizer's padding token.
  const char* pad_token = nullptr;
  bool begins_with_bos = false;
  bool has_system_role = true;           ///< otherwise a first message of the system is left out
  bool trains_on_everything = false;     ///< otherwise on answers
  bool capitalizes_roles = false;        ///< user → User
  const char* system_message = nullptr;  ///< that of --force-system-message
};

/// Renders conversations. Immutable and thread-safe.
class ConversationText {
 public:
  /// Takes the format of --sft-tokenizer-prompt-format, unless the tokenizer has a format of its
  /// own. Throws a UserError if the format does not exist, needs a template or a token that does
  /// not exist, or does not read the template that the files choose.
  ConversationText(const std::string& sft_format, const Tokenizer& tokenizer,
                   const ChatFiles& files);
  ~ConversationText();

  const PromptKind& kind() const { return *kind_; }
  /// Returns whether the format is one of MultimodalTokenizer.
  bool is_multimodal() const { return is_multimodal_; }
  /// Returns the flag with the format, for errors.
  const std::string& flag() const { return flag_; }
  /// Returns a text that differs for objects that may write different texts.
  const std::string& description() const { return description_; }

  /// Returns the messages that are written: with the format's system message, its names of roles
  /// and tags around images.
  Conversation prepare(Conversation conversation) const;

  /// Returns the text of prepare()d messages, with the beginning of an answer if `asks`. `where`
  /// names them in errors of templates.
  std::string text(const Conversation& prepared, const std::string& where, bool asks = false) const;

 private:
  struct Template;

  const PromptKind* kind_ = nullptr;
  bool is_multimodal_ = false, force_system_message_ = false;
  std::string image_tag_type_, bos_, eos_, flag_, description_;
  std::unique_ptr<const Template> template_;
};

}  // namespace megatron
