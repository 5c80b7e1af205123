// Files of conversations. The input is JSON lines.
#include "megatron/datasets/conversations.h"

#include "fuzz/target.h"
#include "fuzz/targets.h"
#include "megatron/base/error.h"

namespace megatron::fuzz {

void parse_conversations(std::string_view input) {
  const ConversationFile file(write_input("chats.jsonl", input));
  for (std::int64_t i = 0; i < file.size(); ++i) {
    try {
      split_conversations(file.messages(i));
    } catch (const UserError& error) {
      require(std::string(error.what()).find(file.describe(i)) != std::string::npos,
              "no line is named");
    }
  }
}

}  // namespace megatron::fuzz
