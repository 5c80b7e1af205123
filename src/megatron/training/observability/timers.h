// Named timers with Megatron's names and print format. A timer above the run's --timing-log-level
// does nothing.
//
//   Timers timers(1, TimerStatistic::minmax);
//   { const auto timing = timers.scope("forward-backward", 1); ... }
//   std::cout << timers.report({"forward-backward"}, /*divisor=*/10) << '\n';
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// Values of --timing-log-option: which statistic over the ranks is shown.
enum class TimerStatistic { max, minmax, all };

/// Parses "max", "minmax" or "all"; UserError for any other value.
TimerStatistic timer_statistic(std::string_view name);

/// Gathers every rank's numbers, in rank order. Collective over the ranks that report.
using GatherTimes =
    std::function<std::vector<std::vector<double>>(const std::vector<double>& mine)>;

/// Notified when a scope begins or ends, at any log level.
class TimerListener {
 public:
  virtual ~TimerListener() = default;
  virtual void on_start(std::string_view timer) = 0;
  virtual void on_stop(std::string_view timer) = 0;
};

class Timers {
 public:
  Timers(int log_level, TimerStatistic statistic) : log_level_(log_level), statistic_(statistic) {}

  /// Measures the time from its construction to its destruction.
  class Scope {
   public:
    Scope(Timers& timers, std::string_view name, int level);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    Timers& timers_;
    std::string_view name_;
    bool is_measured_;
  };
  /// Returns a scope that measures `name`, which must outlive the scope (a literal).
  [[nodiscard]] Scope scope(std::string_view name, int level = 0) { return {*this, name, level}; }

  /// Adds a listener unless it is registered already. It must outlive its registration.
  void add_listener(TimerListener& listener);
  void remove_listener(TimerListener& listener) { std::erase(listeners_, &listener); }

  void start(std::string_view name);
  void stop(std::string_view name);
  /// Returns the seconds measured so far, including a running measurement; 0 for a timer that never
  /// ran.
  double seconds(std::string_view name) const;
  void reset(std::string_view name);

  /// Sets how report() gathers times. Without it, a report covers this rank only.
  void set_gather(GatherTimes gather) { gather_ = std::move(gather); }

  /// Returns Megatron's block for those of `names` that ran on any rank, in milliseconds divided by
  /// `divisor`, and resets these timers. Returns "" when none ran. Collective over the ranks of the
  /// gather function.
  std::string report(std::span<const std::string_view> names, double divisor = 1);

 private:
  using Clock = std::chrono::steady_clock;
  struct Timer {
    Clock::duration total{};
    Clock::time_point started;
    bool running = false;
  };
  int log_level_;
  TimerStatistic statistic_;
  std::vector<TimerListener*> listeners_;
  GatherTimes gather_;
  std::map<std::string, Timer, std::less<>> timers_;
};

}  // namespace megatron
