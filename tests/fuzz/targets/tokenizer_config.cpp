// The files beside a tokenizer that define special tokens and chat templates. The input holds
// tokenizer_config.json, special_tokens_map.json and chat_template.json, separated by NUL bytes.
#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/error.h"
#include "megatron/tokenizers/chat/chat_files.h"
#include "megatron/tokenizers/hugging_face/special_tokens.h"

namespace megatron::fuzz {

void parse_tokenizer_config(std::string_view input) {
  for (const char* name :
       {"tokenizer_config.json", "special_tokens_map.json", "chat_template.json"})
    write_input(name, take_part(input));
  const std::string folder = input_folder();
  const auto each = [](const auto& read) {
    try {
      read();
    } catch (const UserError&) {  // the next reader has other requirements
    }
  };
  each([&] { special_token_variables(folder, nullptr); });
  each([&] {
    hugging_face::read_special_tokens(
        folder, [](const std::string& token) { return static_cast<std::int32_t>(token.size()); });
  });
  for (const auto& [name, source] : find_chat_templates(folder))
    ChatTemplate(source.text, source.source);
}

}  // namespace megatron::fuzz
