// Finds the chat template of a model, and the special tokens that it prints, and encodes its texts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/tokenizers/chat/chat_template.h"
#include "megatron/tokenizers/hugging_face/token_trie.h"
#include "megatron/tokenizers/tokenizer.h"
#include "megatron/tokenizers/tokenizer_files.h"

namespace megatron {

/// A template's text and where it stands, for messages.
struct ChatTemplateSource {
  std::string text;
  std::string source;
};

/// Returns the templates of a model's folder by name: that of chat_template.jinja, else those in
/// tokenizer_config.json, else that of chat_template.json, and those in additional_chat_templates/.
/// The name of a single template is "default". Throws UserErrors that name file and field.
std::map<std::string, ChatTemplateSource> find_chat_templates(const std::filesystem::path& folder);

/// Finds the template that the choice names among those of the folder, or else the file of that
/// name: a template, or a .json file with the field chat_template. Without a choice, finds that of
/// the metadata if it is given, else the folder's template "tool_use" for conversations with tools,
/// if there is one, and otherwise "default". Throws UserErrors, one of them when there is no
/// template.
ChatTemplateSource find_chat_template(const ChatFiles& files, bool has_tools);

/// Opens the template of find_chat_template().
ChatTemplate open_chat_template(const ChatFiles& files, bool has_tools);

/// Returns the variables bos_token, eos_token, … that tokenizer_config.json and
/// special_tokens_map.json in `folder` define; without such files, the bos_token and eos_token of
/// the tokenizer, which may be null.
std::vector<std::pair<std::string, chat::Value>> special_token_variables(
    const std::filesystem::path& folder, const Tokenizer* tokenizer);

/// Encodes a text in which special tokens stand by their names: each name becomes its id. For a
/// tokenizer.json, the ids are those of transformers' apply_chat_template(). Thread-safe. The
/// tokenizer must outlive the object.
class ChatEncoder {
 public:
  explicit ChatEncoder(const Tokenizer& tokenizer);
  /// Adds no other special tokens, or also those that a tokenizer.json adds to a text.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens = false) const;

 private:
  const Tokenizer& tokenizer_;
  hugging_face::TokenTrie names_;  ///< empty when the tokenizer finds the names itself
};

}  // namespace megatron
