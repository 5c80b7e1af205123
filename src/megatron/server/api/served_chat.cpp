#include "megatron/server/api/served_chat.h"

namespace megatron {

std::unique_ptr<ServedChat> open_served_chat(const ChatFiles& files, const Tokenizer& tokenizer,
                                             const std::string& tool_call_parser,
                                             const std::string& reasoning_parser) {
  if (!files.has_template() && (files.folder.empty() || find_chat_templates(files.folder).empty()))
    return nullptr;
  const ChatTemplateSource plain = find_chat_template(files, /*has_tools=*/false),
                           with_tools = find_chat_template(files, /*has_tools=*/true);
  return std::make_unique<ServedChat>(ServedChat{
      ChatTemplate(plain.text, plain.source), ChatTemplate(with_tools.text, with_tools.source),
      special_token_variables(files.folder, &tokenizer), ChatEncoder(tokenizer),
      find_output_format(tool_call_parser, reasoning_parser, with_tools.text), plain.text});
}

}  // namespace megatron
