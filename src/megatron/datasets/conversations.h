// Conversations in JSON lines, one list of messages a line:
//   {"messages": [{"role": "system", "content": "…"}, {"role": "user", "content": "…"}, …]}
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/files.h"

namespace megatron {

struct Message {
  std::string role, content;
  bool operator==(const Message&) const = default;
};
using Conversation = std::vector<Message>;

/// Returns the messages of a line, which is a JSON object. Invalid UTF-8 is read as U+FFFD.
/// UserErrors begin with `where`. `had_invalid_utf8`, if given, receives whether there was any.
Conversation parse_messages(std::string_view line, const std::string& where,
                            bool* had_invalid_utf8 = nullptr);

/// Maps a file and finds its lines; a line is parsed when it is read. Thread-safe.
class ConversationFile {
 public:
  /// Throws a UserError if the file cannot be read or is no text.
  explicit ConversationFile(const fs::path& path);
  /// Takes lines from memory; `name` stands for the file in errors.
  ConversationFile(std::string lines, const std::string& name);

  /// Returns the number of lines that are not blank.
  std::int64_t size() const { return static_cast<std::int64_t>(lines_.size()); }
  const fs::path& path() const { return path_; }

  /// Returns the messages of a line. UserErrors name file and line, and so does a note on stderr
  /// about the first invalid UTF-8.
  Conversation messages(std::int64_t index) const;
  /// Returns "file:line" for errors.
  std::string describe(std::int64_t index) const;

 private:
  struct Line {
    std::size_t begin = 0;
    std::uint32_t size = 0, blanks_before = 0;
  };
  void find_lines();
  std::string_view bytes() const;

  fs::path path_;
  std::optional<MappedFile> file_;  ///< otherwise the lines are in `memory_`
  std::string memory_;
  std::vector<Line> lines_;
  std::unique_ptr<std::atomic_flag> has_noted_ = std::make_unique<std::atomic_flag>();
};

/// Returns a file of 1,000 lines, for runs without data: one to three conversations of one to four
/// questions each, whose texts have up to 200 words.
ConversationFile mock_conversations();

/// Divides the messages of a line into conversations: each begins with a message of the role
/// "system", except the first, which may lack one.
std::vector<Conversation> split_conversations(Conversation messages);

}  // namespace megatron
