#include "megatron/parallel/transport/lane_comm.h"

#include <exception>

#include "megatron/base/error.h"
#include "megatron/parallel/transport/exposure.h"

namespace megatron {
namespace {

/// The rank's program stands still, for as long as the object lives.
class StandingStill {
 public:
  StandingStill(RankBoard& board, std::int64_t rank) : board_(board), rank_(rank) { board_.waits().stand_still(rank_, 1); }
  ~StandingStill() { board_.waits().stand_still(rank_, -1); }
  StandingStill(const StandingStill&) = delete;
  StandingStill& operator=(const StandingStill&) = delete;

 private:
  RankBoard& board_;
  std::int64_t rank_;
};

struct OwnPlace {
  std::shared_ptr<RankBoard> board;
  std::int64_t rank;  ///< of the world
};

class LaneWork final : public Work {
 public:
  LaneWork(std::shared_ptr<Lane> lane, std::shared_ptr<Lane::Task> task, std::shared_ptr<Transport> transport, std::shared_ptr<CommCounters> counters,
           CountedCall call, OwnPlace own)
      : lane_(std::move(lane)),
        task_(std::move(task)),
        transport_(std::move(transport)),
        counters_(std::move(counters)),
        call_(std::move(call)),
        own_(std::move(own)) {}

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
    const Exposure exposure(*counters_, call_);
    const StandingStill still(*own_.board, own_.rank);
    lane_->wait(task_);
  }

 private:
  std::shared_ptr<Lane> lane_;
  std::shared_ptr<Lane::Task> task_;
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<CommCounters> counters_;
  CountedCall call_;
  OwnPlace own_;
  int exceptions_ = std::uncaught_exceptions();
  bool waited_ = false;
};

bool is_message(CommOperation operation) { return operation == CommOperation::send || operation == CommOperation::recv; }

}  // namespace

LaneComm::LaneComm(GroupPlace place, std::shared_ptr<Transport> transport, std::shared_ptr<CommCounters> counters, std::shared_ptr<RankBoard> board)
    : transport_(std::move(transport)), place_(std::move(place)), counters_(std::move(counters)), board_(std::move(board)) {}

std::shared_ptr<Lane> LaneComm::lane_of(const CommCall& call) {
  const auto key = is_message(call.operation) ? std::pair{call.operation, call.peer} : std::pair{CommOperation::barrier, std::int64_t{0}};
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Lane>& lane = lanes_[key];
  if (!lane) lane = std::make_shared<Lane>();
  return lane;
}

PendingWork LaneComm::start(CommCall call) {
  CountedCall counted = count_call(*counters_, place_.name, call);
  check_memory(call);
  std::shared_ptr<Lane> lane = lane_of(call);
  auto task = lane->post([transport = transport_, call = std::move(call)] { transport->run(call); });
  return std::make_unique<LaneWork>(std::move(lane), std::move(task), transport_, counters_, std::move(counted), OwnPlace{board_, own_rank()});
}

void LaneComm::run(CommCall call) {
  const Exposure exposure(*counters_, count_call(*counters_, place_.name, call));
  check_memory(call);
  const StandingStill still(*board_, own_rank());
  lane_of(call)->run([&] { transport_->run(call); });
}

void LaneComm::check_memory(const CommCall& call) const {
  for (const at::Tensor* tensor : {&call.in, &call.out}) {
    MEGATRON_CHECK(!tensor->defined() || tensor->is_cpu(), describe(call), " on ", place_.name,
                   ": a tensor in a GPU's memory between ranks on the CPU");
  }
}

}  // namespace megatron
