#include "megatron/base/progress_bar.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "megatron/base/format.h"
#include "megatron/base/terminal.h"

namespace megatron {
namespace {

constexpr auto kDrawInterval = std::chrono::milliseconds(100);
constexpr int kBarWidth = 24;

std::string rate_text(double per_second) {
  const char* suffix = "";
  for (const char* next : {"k", "M", "G"}) {
    if (per_second < 10000) break;
    per_second /= 1000;
    suffix = next;
  }
  return format(per_second < 100 ? "%.1f%s/s" : "%.0f%s/s", per_second, suffix);
}

std::string bar(double share) {
  const auto filled = static_cast<std::size_t>(share * kBarWidth);
  return "[" + std::string(filled, '#') + std::string(kBarWidth - filled, ' ') + "]";
}

}  // namespace

std::string duration_text(double seconds) {
  if (!(seconds >= 0) || seconds > 1e9) return "unknown";
  const auto total = static_cast<long long>(std::llround(seconds));
  const long long days = total / 86400, hours = total / 3600 % 24, minutes = total / 60 % 60;
  if (days > 0) return format("%lld d %02lld:%02lld", days, hours, minutes);
  if (hours > 0) return format("%lld:%02lld:%02lld", hours, minutes, total % 60);
  return format("%lld:%02lld", minutes, total % 60);
}

std::string progress_bar_line(const ProgressBarOptions& options, std::uint64_t done,
                              double elapsed_s, std::string_view detail, int width) {
  std::string line = options.title;
  if (options.total > 0) {
    done = std::min(done, options.total);
    const double share = static_cast<double>(done) / static_cast<double>(options.total);
    line += "  " + std::to_string(static_cast<int>(share * 100)) + "% " + bar(share) + " " +
            std::to_string(done) + "/" + std::to_string(options.total);
  } else {
    line += "  " + std::to_string(done);
  }
  if (!options.unit.empty()) line += " " + options.unit;
  const double worked = done > options.start ? static_cast<double>(done - options.start) : 0;
  if (worked > 0 && elapsed_s > 0) {
    line += "  " + rate_text(worked / elapsed_s);
    if (options.total > 0)
      line += "  remaining " +
              duration_text(elapsed_s / worked * static_cast<double>(options.total - done));
  }
  if (!detail.empty()) line += "  " + std::string(detail);
  return line.substr(0, static_cast<std::size_t>(std::max(width, 0)));
}

ProgressBar::ProgressBar(ProgressBarOptions options)
    : options_(std::move(options)),
      is_enabled_(options_.enabled.value_or(is_terminal(STDERR_FILENO))),
      begin_(Clock::now()),
      next_draw_(begin_) {}

void ProgressBar::update(std::uint64_t done, std::string_view detail) {
  if (!is_enabled_) return;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kDrawInterval;
  const double elapsed_s = std::chrono::duration<double>(now - begin_).count();
  std::cerr << "\r\033[K"
            << progress_bar_line(options_, done, elapsed_s, detail,
                                 terminal_width(STDERR_FILENO) - 1)
            << std::flush;
  is_drawn_ = true;
}

void ProgressBar::clear() {
  if (!is_enabled_) return;
  const std::lock_guard lock(mutex_);
  if (is_drawn_) std::cerr << "\r\033[K" << std::flush;
  is_drawn_ = false;
  next_draw_ = {};
}

}  // namespace megatron
