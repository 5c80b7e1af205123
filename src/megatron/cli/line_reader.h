// Reads the lines of stdin for commands that answer each line.
#pragma once

#include <string>
#include <string_view>

#include "megatron/base/stop_event.h"

namespace megatron {

/// Reads lines from stdin and returns each as soon as it is complete, so that a program that writes
/// one line and waits for its answer does not block.
class LineReader {
 public:
  /// Sets `line`, which is valid until the next call. Returns false at the end.
  bool next(std::string_view& line);
  /// Ends the input for another thread, which may be waiting for it in next().
  void stop() const { stop_.set(); }
  /// Returns whether the buffer contains another complete line.
  bool has_more() const { return buffer_.find('\n', searched_) != std::string::npos; }

 private:
  bool take(std::string_view& line, std::size_t end, std::size_t newline);
  void fill();

  StopEvent stop_;
  std::string buffer_;
  std::size_t begin_ = 0, searched_ = 0;
  bool at_end_ = false;
};

}  // namespace megatron
