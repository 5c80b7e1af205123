#include "megatron/pipeline/overlapped_pair.h"

#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <stdexcept>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

OverlappedPair::~OverlappedPair() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool OverlappedPair::is_running() const {
  const std::lock_guard lock(mutex_);
  return is_running_;
}

void OverlappedPair::run(const std::function<void()>& first, const std::function<void()>& second) {
  const std::function<void()> body = with_caller_state(second);
  begin(body);
  run_side(kFirst, first);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return has_ended_[kSecond]; });
  is_running_ = false;
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void OverlappedPair::begin(const std::function<void()>& second) {
  const std::lock_guard lock(mutex_);
  MEGATRON_CHECK(!is_running_, "an overlapped pair is already running");
  is_running_ = true;
  active_ = kFirst;
  has_ended_ = {false, false};
  first_thread_ = std::this_thread::get_id();
  second_ = &second;
  if (!thread_.joinable()) thread_ = std::thread([this] { run_second_thread(); });
}

std::function<void()> OverlappedPair::with_caller_state(const std::function<void()>& body) {
  std::optional<c10::Stream> stream;
  if (!device_.is_cpu()) stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  return
      [this, &body, stream, state = at::ThreadLocalState(), num_threads = at::get_num_threads()] {
        if (num_threads != std::exchange(num_threads_, num_threads))
          at::set_num_threads(num_threads);
        const at::ThreadLocalStateGuard same_state(state);
        const c10::OptionalStreamGuard same_stream(stream);
        body();
      };
}

void OverlappedPair::run_second_thread() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [this] { return is_ending_ || (second_ != nullptr && active_ == kSecond); });
    if (is_ending_) return;
    const std::function<void()>& body = *std::exchange(second_, nullptr);
    lock.unlock();
    run_side(kSecond, body);
    lock.lock();
  }
}

void OverlappedPair::run_side(Side side, const std::function<void()>& body) {
  std::exception_ptr error;
  try {
    if (!failure_) body();
  } catch (...) {
    error = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    has_ended_[side] = true;
    active_ = side == kFirst ? kSecond : kFirst;
  }
  changed_.notify_all();
}

void OverlappedPair::yield() {
  std::unique_lock lock(mutex_);
  if (!is_running_) return;
  const Side mine = std::this_thread::get_id() == first_thread_ ? kFirst : kSecond,
             other = mine == kFirst ? kSecond : kFirst;
  if (!has_ended_[other]) {
    active_ = other;
    changed_.notify_all();
    changed_.wait(lock, [&] { return active_ == mine; });
  }
  if (failure_) throw std::runtime_error("the other step of a joined pair failed");
}

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
