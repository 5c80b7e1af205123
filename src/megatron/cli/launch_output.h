// The ranks' output, line by line, into the launcher's own: whole lines, never blocking the
// launcher while a reader is slow.
#pragma once

#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace megatron {

/// Text on its way into a descriptor that may be full. Once the reader has gone, what comes is
/// dropped: ranks outlive the reader of their log.
class OutputQueue {
 public:
  explicit OutputQueue(int descriptor) : descriptor_(descriptor) {}
  void add(std::string_view text);
  /// Writes a part that cannot block; call when the descriptor is ready.
  void write_some();
  bool is_empty() const { return text_.empty(); }
  /// Whether enough waits already; the ranks shall wait too.
  bool is_full() const { return text_.size() > (std::size_t{1} << 20); }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
  bool is_closed_ = false;
  std::string text_;
};

/// The file of a rank's stdout and stderr.
class RankLog {
 public:
  /// UserError when it cannot be opened.
  RankLog(const std::filesystem::path& path, bool starts_empty);
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;
  ~RankLog();
  void append(std::string_view text);

 private:
  int descriptor_;
};

/// One stream of a rank: what comes through its pipe goes on as whole lines behind the rank's
/// prefix, and into its log file.
class RankStream {
 public:
  struct Targets {
    OutputQueue* queue = nullptr;
    std::shared_ptr<RankLog> log;  ///< may be null
  };
  /// Owns the pipe's end.
  RankStream(int pipe, std::string prefix, Targets targets);
  RankStream(const RankStream&) = delete;
  RankStream& operator=(const RankStream&) = delete;
  ~RankStream();

  /// Takes over what has come; at the end of the stream, closes it.
  void read_some();
  bool is_open() const { return pipe_ >= 0; }
  bool can_read() const { return is_open() && !targets_.queue->is_full(); }
  int descriptor() const { return pipe_; }
  /// The newest lines, oldest first.
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
