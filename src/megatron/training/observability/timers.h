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

/// --timing-log-option: what is shown of a time that every rank measured.
enum class TimerStatistic { max, minmax, all };

/// "max", "minmax" or "all"; UserError otherwise.
TimerStatistic timer_statistic(std::string_view name);

/// Every rank's numbers for this rank's, in rank order; collective over the ranks that report.
using GatherTimes =
    std::function<std::vector<std::vector<double>>(const std::vector<double>& mine)>;

/// Hears when scopes begin and end, whatever their level.
class TimerListener {
 public:
  virtual ~TimerListener() = default;
  virtual void on_start(std::string_view timer) = 0;
  virtual void on_stop(std::string_view timer) = 0;
};

class Timers {
 public:
  Timers(int log_level, TimerStatistic statistic) : log_level_(log_level), statistic_(statistic) {}

  /// Measures from its construction to its destruction.
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
  /// `name` must outlive the scope (a literal).
  [[nodiscard]] Scope scope(std::string_view name, int level = 0) { return {*this, name, level}; }

  /// Each is heard once; it must outlive its use.
  void add_listener(TimerListener& listener);
  void remove_listener(TimerListener& listener) { std::erase(listeners_, &listener); }

  void start(std::string_view name);
  void stop(std::string_view name);
  /// Seconds measured so far, the running stretch included; 0 for a timer that never ran.
  double seconds(std::string_view name) const;
  void reset(std::string_view name);

  /// Without one, a report is of this rank alone.
  void set_gather(GatherTimes gather) { gather_ = std::move(gather); }

  /// Megatron's block of those `names` that ran on some rank, in milliseconds divided by `divisor`,
  /// and resets them; "" when none ran. Collective over the ranks of the gather.
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
