#include "megatron/pipeline/overlapped_comm.h"

#include <utility>

namespace megatron {
namespace {

class OverlappedWork final : public Work {
 public:
  OverlappedWork(PendingWork work, std::shared_ptr<OverlappedPair> pair)
      : work_(std::move(work)), pair_(std::move(pair)) {}
  void wait() override {
    if (is_waited_) return;
    pair_->yield();
    is_waited_ = true;
    work_->wait();
  }

 private:
  PendingWork work_;
  std::shared_ptr<OverlappedPair> pair_;
  bool is_waited_ = false;
};

}  // namespace

PendingWork OverlappedComm::start(CommCall call) {
  PendingWork work = start_on(*comm_, std::move(call));
  if (!pair_->is_running()) return work;
  return std::make_unique<OverlappedWork>(std::move(work), pair_);
}

void OverlappedComm::run(CommCall call) {
  if (!pair_->is_running() || call.operation == CommOperation::barrier)
    return run_on(*comm_, std::move(call));
  start(std::move(call))->wait();
}

void enable_overlap(std::initializer_list<Axis*> axes, c10::Device device) {
  const auto pair = std::make_shared<OverlappedPair>(device);
  for (Axis* axis : axes) {
    if (axis->comm != nullptr) axis->comm = std::make_shared<OverlappedComm>(axis->comm, pair);
  }
}

OverlappedPair* overlapped_pair_of(std::initializer_list<const Axis*> axes) {
  for (const Axis* axis : axes) {
    if (const auto* comm = dynamic_cast<const OverlappedComm*>(axis->comm.get()))
      return &comm->pair();
  }
  return nullptr;
}

}  // namespace megatron
