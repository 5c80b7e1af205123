// Measures spans of work on a GPU with events of its stream. Neither the host nor the GPU waits for
// them.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <vector>

#include "megatron/training/observability/stragglers/own_times.h"

namespace megatron {

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

}  // namespace megatron
