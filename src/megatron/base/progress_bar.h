// A one-line progress bar with the remaining time. It is shown on terminals only, not in pipes and
// files.
//
//   ProgressBar progress({.title = "tokenizing", .total = documents, .unit = "documents"});
//   for (…) progress.update(done);
//   // before other output to the terminal: progress.clear();
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace megatron {

/// The contents of a progress bar. `start` is the number of units done before this process started
/// (a resumed run); it counts for the bar, but not for the speed.
struct ProgressBarOptions {
  std::string title = {};
  std::uint64_t total = 0;  ///< 0: unknown; the line then has no bar and no remaining time
  std::uint64_t start = 0;
  std::string unit = {};
  std::optional<bool> enabled = {};  ///< unset: shown if stderr is a terminal
};

/// Returns the line for `done` units after `elapsed_s` seconds, at most `width` columns wide:
/// "title  42% [####    ] 42/100 unit  7.0/s  remaining 0:08  detail".
std::string progress_bar_line(const ProgressBarOptions& options, std::uint64_t done,
                              double elapsed_s, std::string_view detail, int width);

/// Formats a duration as "0:08", "12:34", "1:02:03" or "3 d 04:05".
std::string duration_text(double seconds);

/// Draws the line on stderr at most ten times per second and removes it at the end. Thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(ProgressBarOptions options);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() { clear(); }

  void update(std::uint64_t done, std::string_view detail = {});
  /// Removes the line so that other output can be written. The next update draws it again.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  ProgressBarOptions options_;
  bool is_enabled_;
  Clock::time_point begin_;
  std::mutex mutex_;
  Clock::time_point next_draw_;
  bool is_drawn_ = false;
};

}  // namespace megatron
