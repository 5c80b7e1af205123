#include "megatron/parallel/transport/failure_watch.h"

#include <chrono>
#include <exception>

namespace megatron {
namespace {

constexpr const char* kFailureKey = "failure";
constexpr std::chrono::milliseconds kInterval{200};

}  // namespace

FailureWatch::FailureWatch(StoreTalk& talk, std::shared_ptr<RankBoard> board) : talk_(talk), board_(std::move(board)), thread_([this] { watch(); }) {}

FailureWatch::~FailureWatch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FailureWatch::guard(std::function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  cancels_.push_back(std::move(cancel));
}

void FailureWatch::tell() {
  try {
    if (board_->failed() && !talk_.has(kFailureKey)) talk_.set(kFailureKey, board_->failure());
  } catch (const std::exception&) {
    // The store has gone with its host; the others notice that by themselves.
  }
}

/// False when there is nothing more to look for.
bool FailureWatch::look() {
  try {
    if (!board_->failed() && talk_.has(kFailureKey)) board_->fail(talk_.get(kFailureKey));
  } catch (const std::exception&) {
    return false;  // the store has gone: at the end of a run nothing is wrong, else a connection breaks and says so
  }
  return !board_->failed();
}

void FailureWatch::cancel_all() {
  std::vector<std::function<void()>> cancels;
  {
    const std::lock_guard lock(mutex_);
    cancels = cancels_;
  }
  for (const auto& cancel : cancels) cancel();
}

void FailureWatch::watch() {
  while (look()) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kInterval, [this] { return ending_; })) return;
  }
  if (!board_->failed()) return;
  tell();
  cancel_all();
}

}  // namespace megatron
