#include "megatron/training/observability/timers.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/format.h"

namespace megatron {
namespace {

/// Formats the `milliseconds` of each rank.
std::string timer_line(std::string_view name, const std::vector<double>& milliseconds,
                       TimerStatistic statistic) {
  const auto [least, most] = std::ranges::minmax(milliseconds);
  std::string title = std::string(name) + ' ';
  title.resize(std::max<std::size_t>(title.size(), 48), '.');
  switch (statistic) {
    case TimerStatistic::minmax:
      return format("\n    %s: (%.2f, %.2f)", title.c_str(), least, most);
    case TimerStatistic::max:
      return format("\n    %s: %.2f", title.c_str(), most);
    case TimerStatistic::all:
      break;
  }
  std::string lines = "\n  " + std::string(name) + ":";
  for (std::size_t rank = 0; rank < milliseconds.size(); ++rank)
    lines += format("\n     rank %2zu: %.2f", rank, milliseconds[rank]);
  return lines;
}

}  // namespace

TimerStatistic timer_statistic(std::string_view name) {
  if (name == "max") return TimerStatistic::max;
  if (name == "minmax") return TimerStatistic::minmax;
  if (name == "all") return TimerStatistic::all;
  throw UserError({"--timing-log-option", std::string(name), "one of max, minmax, all"});
}

Timers::Scope::Scope(Timers& timers, std::string_view name, int level)
    : timers_(timers), name_(name), is_measured_(level <= timers.log_level_) {
  if (is_measured_) timers_.start(name_);
  for (TimerListener* listener : timers_.listeners_) listener->on_start(name_);
}

Timers::Scope::~Scope() {
  for (TimerListener* listener : timers_.listeners_) listener->on_stop(name_);
  if (is_measured_) timers_.stop(name_);
}

void Timers::add_listener(TimerListener& listener) {
  if (std::ranges::find(listeners_, &listener) == listeners_.end()) listeners_.push_back(&listener);
}

void Timers::start(std::string_view name) {
  auto found = timers_.find(name);
  if (found == timers_.end()) found = timers_.emplace(std::string(name), Timer{}).first;
  Timer& timer = found->second;
  MEGATRON_CHECK(!timer.running, "timer ", name, " is already running");
  timer.started = Clock::now();
  timer.running = true;
}

void Timers::stop(std::string_view name) {
  const auto found = timers_.find(name);
  MEGATRON_CHECK(found != timers_.end() && found->second.running, "timer ", name,
                 " is not running");
  found->second.total += Clock::now() - found->second.started;
  found->second.running = false;
}

double Timers::seconds(std::string_view name) const {
  const auto found = timers_.find(name);
  if (found == timers_.end()) return 0;
  const Timer& timer = found->second;
  const Clock::duration running = timer.running ? Clock::now() - timer.started : Clock::duration{};
  return std::chrono::duration<double>(timer.total + running).count();
}

void Timers::reset(std::string_view name) {
  const auto found = timers_.find(name);
  if (found == timers_.end()) return;
  found->second.total = {};
  found->second.started = Clock::now();
}

std::string Timers::report(std::span<const std::string_view> names, double divisor) {
  std::vector<double> mine;
  for (const std::string_view name : names) {
    mine.push_back(seconds(name) * 1000 / divisor);
    reset(name);
  }
  const std::vector<std::vector<double>> ranks =
      gather_ ? gather_(mine) : std::vector<std::vector<double>>{mine};
  std::string lines;
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::vector<double> milliseconds;
    for (const std::vector<double>& rank : ranks) milliseconds.push_back(rank[i]);
    if (std::ranges::max(milliseconds) > 0) lines += timer_line(names[i], milliseconds, statistic_);
  }
  if (lines.empty()) return {};
  const std::string_view heading =
      statistic_ == TimerStatistic::minmax ? "(min, max) time across ranks (ms):"
      : statistic_ == TimerStatistic::max  ? "max time across ranks (ms):"
                                           : "times across ranks (ms):";
  return std::string(heading) + lines;
}

}  // namespace megatron
