// Records LibTorch operators and our own ranges, one entry each, nested by time. There is no
// overhead while no recorder exists.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace megatron {

struct RecordedOp {
  /// op: a LibTorch operator; backward: an autograd node; module: forward of a module; phase: a
  /// phase of the training step.
  enum class Kind { op, backward, module, phase };
  std::string name;
  Kind kind = Kind::op;
  std::int64_t start_ns = 0, duration_ns = 0;
  std::int64_t self_ns = 0;  ///< duration without nested entries
  double bytes = 0,
         flops = 0;    ///< only for leaf operators, so that nothing is counted twice
  std::string shapes;  ///< shapes of the input tensors
};

/// Records the thread that created it and that thread's autograd threads, until destroyed. On a GPU
/// it synchronizes after every operator, so the times are accurate but the step is slower.
class OpRecorder {
 public:
  explicit OpRecorder(c10::Device device);
  OpRecorder(const OpRecorder&) = delete;
  OpRecorder& operator=(const OpRecorder&) = delete;
  ~OpRecorder();

  /// Begins a named range; ranges nest.
  void begin(std::string name, RecordedOp::Kind kind);
  /// Ends the innermost open range with this name and all ranges inside it. Does nothing when there
  /// is none.
  void end(const std::string& name);
  /// Returns the entries that ended since the last call, in the order in which they ended.
  std::vector<RecordedOp> take();

 private:
  class Log;
  struct Registration;
  std::shared_ptr<Log> log_;
  std::unique_ptr<Registration> registration_;
};

}  // namespace megatron
