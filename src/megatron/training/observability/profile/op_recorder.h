// Records what LibTorch and our own scopes do, one entry each, nested by time. Nothing is paid
// while no recorder lives.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace megatron {

struct RecordedOp {
  /// An operator, a node of autograd's backward pass, a module, or a phase of the step.
  enum class Kind { op, backward, module, phase };
  std::string name;
  Kind kind = Kind::op;
  std::int64_t start_ns = 0, duration_ns = 0;
  std::int64_t self_ns = 0;  ///< without what it called
  double bytes = 0,
         flops = 0;    ///< of operators that call no other that works: nothing is counted twice
  std::string shapes;  ///< of the tensors it was given
};

/// Records the thread that made it, and the autograd threads that work for it, until destroyed. On
/// a GPU it waits for the device after every operator, so times are right and the whole is slower.
class OpRecorder {
 public:
  explicit OpRecorder(c10::Device device);
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;
  ~OpRecorder();

  /// Begins a range of our own; ranges nest.
  void begin(std::string name, RecordedOp::Kind kind);
  /// Ends the innermost range begun with this name and everything inside it; nothing when there is
  /// none.
  void end(const std::string& name);
  /// What was recorded since the last call, in the order in which it ended. Open ranges are not
  /// among it.
  std::vector<RecordedOp> take();

 private:
  class Log;
  struct Registration;
  std::shared_ptr<Log> log_;
  std::unique_ptr<Registration> registration_;
};

}  // namespace megatron
