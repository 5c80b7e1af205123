// Forwards the output of the ranks to the output of the launcher, in whole lines. A slow reader
// does not block the launcher.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "megatron/base/descriptor.h"

namespace megatron {

/// A queue of text for a descriptor that may be full. If the reader closes it or a write fails,
/// further text is dropped, so that the ranks continue without a reader.
class OutputQueue {
 public:
  explicit OutputQueue(int descriptor) : descriptor_(descriptor) {}
  void add(std::string_view text);
  /// Writes as much as cannot block. Call it when the descriptor is ready.
  void write_some();
  bool is_empty() const { return text_.empty(); }
  /// Returns whether so much text is queued that the output of ranks should not be read.
  bool is_full() const { return text_.size() > (std::size_t{1} << 20); }
  int descriptor() const { return descriptor_; }
  /// Returns the errno of the write that lost text, or 0. A reader that went away loses nothing.
  int lost_by() const { return lost_by_; }

 private:
  int descriptor_;
  int lost_by_ = 0;
  bool is_closed_ = false;
  std::string text_;
};

/// The log file of a rank's stdout and stderr.
class RankLog {
 public:
  /// Opens the file. Throws a UserError if it cannot be opened. `notes` must outlive the object.
  RankLog(std::filesystem::path path, bool starts_empty, OutputQueue& notes);
  /// Appends text. The first failure becomes a note; text is then lost, and the run continues.
  void append(std::string_view text);

 private:
  std::filesystem::path path_;
  OutputQueue& notes_;
  Descriptor descriptor_;
  bool has_lost_text_ = false;
};

/// One output stream of a rank. It forwards whole lines from the pipe, with the rank's prefix, and
/// appends the text to the log file.
class RankStream {
 public:
  struct Targets {
    OutputQueue* queue = nullptr;  ///< null: lines are not forwarded
    std::shared_ptr<RankLog> log;  ///< may be null
  };
  /// Takes ownership of the read end of the pipe.
  RankStream(int pipe, std::string prefix, Targets targets);
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;
  ~RankStream();

  /// Reads the available text, and closes the pipe at its end.
  void read_some();
  /// Returns whether there is text to read, or the end.
  bool has_text() const;
  /// Gives the lines that follow another prefix and other targets, and forgets the last lines.
  void redirect(std::string prefix, Targets targets);
  bool is_open() const { return pipe_ >= 0; }
  bool can_read() const {
    return is_open() && !(targets_.queue != nullptr && targets_.queue->is_full());
  }
  int descriptor() const { return pipe_; }
  /// Returns the last lines, oldest first.
  const std::deque<std::string>& last_lines() const { return last_lines_; }

 private:
  void take(std::string_view text);
  void forward_line(std::string_view line);
  void close();

  int pipe_;
  std::string prefix_;
  Targets targets_;
  std::string partial_;
  std::deque<std::string> last_lines_;
};

}  // namespace megatron
