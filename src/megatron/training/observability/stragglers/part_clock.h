// Measures the parts of each step on this rank, without the waits for other ranks. It listens to
// the scopes of the timers and reads two clocks at the ends of each, so it needs no call to another
// rank.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "megatron/training/observability/stragglers/own_times.h"
#include "megatron/training/observability/timers.h"

namespace megatron {

/// Measures spans of work on a GPU with events of its stream. Neither the host nor the GPU waits
/// for them.
class DeviceSpans {
 public:
  explicit DeviceSpans(c10::Device device) : device_(device) {}

  void begin(StepPart part);
  void end();
  /// Replaces the host's times of the parts that were measured since the last call, and starts
  /// again. The GPU must have finished them.
  void replace(OwnTimes& times);

 private:
  struct Span {
    StepPart part;
    c10::Event begin, end;
  };
  void record(c10::Event& event) const;

  c10::Device device_;
  std::vector<Span> spans_;  ///< events are used again in the next step
  std::size_t num_used_ = 0;
};

class PartClock : public TimerListener {
 public:
  /// Two ascending clocks in seconds: the time, and the part of it for which calls to other ranks
  /// blocked this one.
  struct Clocks {
    std::function<double()> now, waited;
  };
  /// On a GPU, `device` measures forward, backward and the optimizer; null on a CPU.
  explicit PartClock(Clocks clocks, std::unique_ptr<DeviceSpans> device = nullptr);

  /// Returns the times since the last call, or since construction, except those of the CPU. On a
  /// GPU, the host must have waited for the work of the step.
  OwnTimes take_step();

  void on_start(std::string_view timer) override;
  void on_stop(std::string_view timer) override;

 private:
  struct Reading {
    double now_s = 0, waited_s = 0;
  };
  Reading read() const { return {clocks_.now(), clocks_.waited()}; }

  Clocks clocks_;
  std::unique_ptr<DeviceSpans> device_;
  Reading step_begin_, part_begin_;
  int depth_ = 0;  ///< of nested parts, which count as the outer one
  OwnTimes times_;
};

}  // namespace megatron
