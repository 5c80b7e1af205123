// Conversations in JSON lines, one list of messages a line:
//   {"messages": [{"role": "system", "content": "…"}, {"role": "user", "content": "…"}, …]}
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/base/files.h"

namespace megatron {

struct Message {
  std::string role, content;
  bool operator==(const Message&) const = default;
};
using Conversation = std::vector<Message>;

/// Maps a file and finds its lines; a line is parsed when it is read. Thread-safe.
class ConversationFile {
 public:
  /// Throws a UserError if the file cannot be read or is no text.
  explicit ConversationFile(const fs::path& path);

  /// Returns the number of lines that are not blank.
  std::int64_t size() const { return static_cast<std::int64_t>(lines_.size()); }
  const fs::path& path() const { return file_.path(); }

  /// Returns the messages of a line. UserErrors name file and line.
  Conversation messages(std::int64_t index) const;
  /// Returns "file:line" for errors.
  std::string describe(std::int64_t index) const;

 private:
  struct Line {
    std::size_t begin = 0;
    std::uint32_t size = 0, blanks_before = 0;
  };
  MappedFile file_;
  std::vector<Line> lines_;
};

/// Divides the messages of a line into conversations: each begins with a message of the role
/// "system", except the first, which may lack one.
std::vector<Conversation> split_conversations(Conversation messages);

}  // namespace megatron
