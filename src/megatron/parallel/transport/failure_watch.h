// Carries the first failure between hosts: a thread that looks at the store and at this host's board, tells the one what the other knows, and
// cancels the channels, whose waits cannot look themselves.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "megatron/parallel/transport/rank_board.h"
#include "megatron/parallel/transport/store_talk.h"

namespace megatron {

class FailureWatch {
 public:
  FailureWatch(StoreTalk& talk, std::shared_ptr<RankBoard> board);
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  /// Calls `cancel` once something has failed; it holds what it cancels weakly.
  void guard(std::function<void()> cancel);
  /// Tells the other hosts at once what the board knows.
  void tell();

 private:
  void watch();
  bool look();
  void cancel_all();

  StoreTalk& talk_;
  std::shared_ptr<RankBoard> board_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::vector<std::function<void()>> cancels_;
  std::thread thread_;
};

}  // namespace megatron
