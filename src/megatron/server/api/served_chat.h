// What a served model needs to hold conversations: its chat template, and how it writes reasoning
// and calls of tools.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/chat/output_format.h"
#include "megatron/tokenizers/chat/chat_files.h"
#include "megatron/tokenizers/chat/chat_template.h"

namespace megatron {

struct ServedChat {
  ChatTemplate plain, with_tools;  ///< for conversations without and with tools
  /// bos_token, eos_token, … of the tokenizer.
  std::vector<std::pair<std::string, chat::Value>> special_tokens;
  ChatEncoder encoder;
  OutputFormat format;
  std::string source = {};  ///< text of `plain`
};

/// Opens the template of the flags or the tokenizer's folder. Returns null when there is none. The
/// names of parsers are those of find_output_format(). UserError that names file and line.
std::unique_ptr<ServedChat> open_served_chat(const ChatFiles& files, const Tokenizer& tokenizer,
                                             const std::string& tool_call_parser = "auto",
                                             const std::string& reasoning_parser = "auto");

}  // namespace megatron
