#include "megatron/datasets/conversations.h"

#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"

namespace megatron {
namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string text_member(const Json& message, const char* key, const std::string& where) {
  const Json& value = json_at(message, key, where);
  if (!value.is_string())
    throw UserError({where + ": '" + key + "' must be text", value.dump().substr(0, 80), ""});
  return value.get<std::string>();
}

/// Refuses a compressed file, which would otherwise be taken for one broken line.
void check_is_text(std::string_view bytes, const fs::path& path) {
  for (const std::string_view magic :
       {std::string_view("\x1f\x8b"), std::string_view("\x28\xb5\x2f\xfd"),
        std::string_view("PAR1")}) {
    if (bytes.starts_with(magic))
      throw UserError({path.string() + " is compressed, but samples are read in any order", "",
                       "uncompress it into JSON lines"});
  }
}

}  // namespace

ConversationFile::ConversationFile(const fs::path& path) : file_(path) {
  const std::string_view bytes(reinterpret_cast<const char*>(file_.data()), file_.size());
  check_is_text(bytes, path);
  std::uint32_t blanks = 0;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view line = bytes.substr(begin, end - begin);
    if (is_blank(line)) {
      ++blanks;
    } else {
      if (line.size() > std::numeric_limits<std::uint32_t>::max())
        throw UserError({path.string() + " has a line of " + std::to_string(line.size()) + " bytes",
                         "at most 4 GiB can be read", "divide it"});
      lines_.push_back({begin, static_cast<std::uint32_t>(line.size()), blanks});
    }
    begin = end + 1;
  }
}

std::string ConversationFile::describe(std::int64_t index) const {
  const Line& line = lines_[static_cast<std::size_t>(index)];
  return path().string() + ":" + std::to_string(index + 1 + line.blanks_before);
}

Conversation ConversationFile::messages(std::int64_t index) const {
  const Line& line = lines_[static_cast<std::size_t>(index)];
  const std::string where = describe(index);
  const Json json =
      parse_json({reinterpret_cast<const char*>(file_.data()) + line.begin, line.size}, where);
  const Json& list = json_at(json, "messages", where);
  if (!list.is_array() || list.empty())
    throw UserError({where + ": 'messages' must be a list of at least one message",
                     list.dump().substr(0, 80), ""});
  Conversation messages;
  for (const Json& message : list)
    messages.push_back(
        {text_member(message, "role", where), text_member(message, "content", where)});
  return messages;
}

std::vector<Conversation> split_conversations(Conversation messages) {
  std::vector<Conversation> conversations;
  for (Message& message : messages) {
    if (conversations.empty() || message.role == "system") conversations.emplace_back();
    conversations.back().push_back(std::move(message));
  }
  return conversations;
}

}  // namespace megatron
