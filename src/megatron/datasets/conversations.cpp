#include "megatron/datasets/conversations.h"

#include <array>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/base/json_text.h"
#include "megatron/datasets/random_state.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

std::string excerpt(const Json& value) { return std::string(utf8_prefix(value.dump(), 80)); }

std::string text_member(const JsonCursor& message, const char* key, const std::string& where) {
  const JsonCursor value = message[key];
  if (!value->is_string())
    throw UserError({where + ": '" + key + "' must be text", excerpt(*value), ""});
  return value.text();
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

ConversationFile::ConversationFile(const fs::path& path) : path_(path), file_(path) {
  check_is_text(bytes(), path);
  find_lines();
}

ConversationFile::ConversationFile(std::string lines, const std::string& name)
    : path_(name), memory_(std::move(lines)) {
  find_lines();
}

std::string_view ConversationFile::bytes() const {
  if (!file_) return memory_;
  return {reinterpret_cast<const char*>(file_->data()), file_->size()};
}

void ConversationFile::find_lines() {
  const std::string_view bytes = this->bytes();
  std::uint32_t blanks = 0;
  for (std::size_t begin = 0; begin < bytes.size();) {
    const std::size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view line = bytes.substr(begin, end - begin);
    if (is_blank(line)) {
      ++blanks;
    } else {
      if (line.size() > std::numeric_limits<std::uint32_t>::max())
        throw UserError(
            {path().string() + " has a line of " + std::to_string(line.size()) + " bytes",
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
  bool had_invalid_utf8 = false;
  Conversation messages =
      parse_messages(bytes().substr(line.begin, line.size), describe(index), &had_invalid_utf8);
  if (had_invalid_utf8 && !has_noted_->test_and_set())
    std::cerr << "note: " + describe(index) + " contains invalid UTF-8, which is read as U+FFFD\n";
  return messages;
}

Conversation parse_messages(std::string_view line, const std::string& where,
                            bool* had_invalid_utf8) {
  const std::optional<std::string> valid = replace_invalid_utf8(line);
  if (had_invalid_utf8 != nullptr) *had_invalid_utf8 = valid.has_value();
  const JsonCursor json(parse_json(valid ? *valid : line, where), where);
  const JsonCursor list = json["messages"];
  if (!list->is_array() || list->empty())
    throw UserError(
        {where + ": 'messages' must be a list of at least one message", excerpt(*list), ""});
  Conversation messages;
  for (const JsonCursor& message : list.elements())
    messages.push_back(
        {text_member(message, "role", where), text_member(message, "content", where)});
  return messages;
}

ConversationFile mock_conversations() {
  constexpr std::array kWords = {"a", "the", "of", "to", "what", "is", "model", "learns", "words"};
  RandomState random(0);
  const auto text = [&](std::uint64_t most) {
    std::string words = kWords[random.interval(kWords.size() - 1)];
    for (std::uint64_t left = random.interval(most - 1); left > 0; --left)
      words.append(" ").append(kWords[random.interval(kWords.size() - 1)]);
    return words;
  };
  std::string lines;
  for (int line = 0; line < 1000; ++line) {
    JsonText messages = JsonText::array();
    const auto add = [&](const char* role, const std::string& content) {
      messages.push_back({{"role", role}, {"content", content}});
    };
    for (std::uint64_t conversation = 0, last = random.interval(2); conversation <= last;
         ++conversation) {
      add("system", text(20));
      for (std::uint64_t question = 0, end = random.interval(3); question <= end; ++question) {
        add("user", text(60));
        add("assistant", text(200));
      }
    }
    lines += JsonText{{"messages", std::move(messages)}}.dump() + "\n";
  }
  return ConversationFile(std::move(lines), "mock conversations");
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
