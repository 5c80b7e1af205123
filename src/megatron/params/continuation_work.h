// An operation with something left to do when it is over.
#pragma once

#include <functional>
#include <utility>

#include "megatron/parallel/comm.h"

namespace megatron {

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

/// `first`, then `then` on the thread that waits.
inline PendingWork and_then(PendingWork first, std::function<void()> then) {
  return std::make_unique<ContinuationWork>(std::move(first), std::move(then));
}

}  // namespace megatron
