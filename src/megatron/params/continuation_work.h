// A pending communication with a continuation that runs when it has completed.
#pragma once

#include <functional>
#include <utility>

#include "megatron/parallel/comm.h"

namespace megatron {

/// Work that runs a function after it has waited for other work.
class ContinuationWork : public Work {
 public:
  ContinuationWork(PendingWork first, std::function<void()> then)
      : first_(std::move(first)), then_(std::move(then)) {}
  void wait() override {
    first_->wait();
    if (then_) std::exchange(then_, nullptr)();
  }

 private:
  PendingWork first_;
  std::function<void()> then_;
};

/// Returns work that waits for `first` and then runs `then` on the waiting thread, once.
inline PendingWork and_then(PendingWork first, std::function<void()> then) {
  return std::make_unique<ContinuationWork>(std::move(first), std::move(then));
}

}  // namespace megatron
