#include "megatron/training/timers.h"

#include "megatron/base/error.h"
#include "megatron/base/format.h"

namespace megatron {
namespace {

std::string timer_line(std::string_view name, double milliseconds, TimerStatistic statistic) {
  std::string title = std::string(name) + ' ';
  title.resize(std::max<std::size_t>(title.size(), 48), '.');
  switch (statistic) {
    case TimerStatistic::minmax:
      return format("\n    %s: (%.2f, %.2f)", title.c_str(), milliseconds, milliseconds);
    case TimerStatistic::max:
      return format("\n    %s: %.2f", title.c_str(), milliseconds);
    case TimerStatistic::all:
      break;
  }
  return "\n  " + std::string(name) + format(":\n     rank %2d: %.2f", 0, milliseconds);
}

}  // namespace

TimerStatistic timer_statistic(std::string_view name) {
  if (name == "max") return TimerStatistic::max;
  if (name == "minmax") return TimerStatistic::minmax;
  if (name == "all") return TimerStatistic::all;
  throw UserError({"--timing-log-option", std::string(name), "one of max, minmax, all"});
}

Timers::Scope::Scope(Timers& timers, std::string_view name, int level) : timers_(timers), name_(name), is_measured_(level <= timers.log_level_) {
  if (is_measured_) timers_.start(name_);
  if (timers_.listener_ != nullptr) timers_.listener_->on_start(name_);
}

Timers::Scope::~Scope() {
  if (timers_.listener_ != nullptr) timers_.listener_->on_stop(name_);
  if (is_measured_) timers_.stop(name_);
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
  MEGATRON_CHECK(found != timers_.end() && found->second.running, "timer ", name, " is not running");
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
  std::string lines;
  for (const std::string_view name : names) {
    const double milliseconds = seconds(name) * 1000 / divisor;
    if (milliseconds == 0) continue;
    lines += timer_line(name, milliseconds, statistic_);
    reset(name);
  }
  if (lines.empty()) return {};
  const std::string_view heading = statistic_ == TimerStatistic::minmax ? "(min, max) time across ranks (ms):"
                                   : statistic_ == TimerStatistic::max  ? "max time across ranks (ms):"
                                                                        : "times across ranks (ms):";
  return std::string(heading) + lines;
}

}  // namespace megatron
