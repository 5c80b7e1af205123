#include "megatron/parallel/transport/lane_comm.h"

#include <chrono>
#include <exception>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Adds the time until its end to what the call exposed.
class Exposure {
 public:
  Exposure(CommCounters& counters, const std::string& axis, CommOperation operation, const char* what)
      : counters_(counters), axis_(axis), operation_(operation), what_(what) {}
  ~Exposure() {
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin_;
    counters_.add_exposed(axis_, name_of(operation_), what_, time.count());
  }

 private:
  CommCounters& counters_;
  const std::string& axis_;
  CommOperation operation_;
  const char* what_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

struct CallName {
  std::string axis;
  CommOperation operation;
  const char* what;
};

class LaneWork final : public Work {
 public:
  LaneWork(std::shared_ptr<Lane> lane, std::shared_ptr<Lane::Task> task, std::shared_ptr<Transport> transport, std::shared_ptr<CommCounters> counters,
           CallName name)
      : lane_(std::move(lane)), task_(std::move(task)), transport_(std::move(transport)), counters_(std::move(counters)), name_(std::move(name)) {}

  ~LaneWork() override {
    if (waited_) return;
    if (std::uncaught_exceptions() > exceptions_) transport_->cancel();
    try {
      lane_->wait(task_);
    } catch (const std::exception&) {
      // Whoever needed the result would have waited; the lane reports the failure to its next caller.
    }
  }
  void wait() override {
    if (waited_) return;
    waited_ = true;
    const Exposure exposure(*counters_, name_.axis, name_.operation, name_.what);
    lane_->wait(task_);
  }

 private:
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<Lane::Task> task_;
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<CommCounters> counters_;
  CallName name_;
  int exceptions_ = std::uncaught_exceptions();
  bool waited_ = false;
};

bool is_message(CommOperation operation) { return operation == CommOperation::send || operation == CommOperation::recv; }

}  // namespace

LaneComm::LaneComm(GroupPlace place, std::shared_ptr<Transport> transport, std::shared_ptr<CommCounters> counters)
    : place_(std::move(place)), transport_(std::move(transport)), counters_(std::move(counters)) {}

std::shared_ptr<Lane> LaneComm::lane_of(const CommCall& call) {
  const auto key = is_message(call.operation) ? std::pair{call.operation, call.peer} : std::pair{CommOperation::barrier, std::int64_t{0}};
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Lane>& lane = lanes_[key];
  if (!lane) lane = std::make_shared<Lane>();
  return lane;
}

void LaneComm::count(const CommCall& call) const {
  for (const at::Tensor* tensor : {&call.in, &call.out}) {
    MEGATRON_CHECK(!tensor->defined() || tensor->is_cpu(), describe(call), " on ", place_.name,
                   ": a tensor in a GPU's memory between ranks on the CPU");
  }
  const std::size_t in = call.in.defined() ? call.in.nbytes() : 0, out = call.out.defined() ? call.out.nbytes() : 0;
  counters_->add_call(place_.name, name_of(call.operation), call.what, static_cast<std::int64_t>(std::max(in, out)));
}

PendingWork LaneComm::start(CommCall call) {
  count(call);
  std::shared_ptr<Lane> lane = lane_of(call);
  CallName name{place_.name, call.operation, call.what};
  auto task = lane->post([transport = transport_, call = std::move(call)] { transport->run(call); });
  return std::make_unique<LaneWork>(std::move(lane), std::move(task), transport_, counters_, std::move(name));
}

void LaneComm::run(CommCall call) {
  count(call);
  const Exposure exposure(*counters_, place_.name, call.operation, call.what);
  lane_of(call)->run([&] { transport_->run(call); });
}

}  // namespace megatron
