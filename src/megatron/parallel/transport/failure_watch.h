// Carries news between hosts: a thread that looks at the store and at this host's board, tells the one what the other knows, ends the waits of
// channels, which cannot look themselves, and answers when another host asks who holds everybody up.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
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
  struct Options {
    std::int64_t rank = 0;                       ///< of the world
    std::vector<std::int64_t> first_of = {};     ///< per rank of the world, the first rank of its place
    std::chrono::milliseconds timeout{600'000};  ///< of a wait
  };
  FailureWatch(StoreTalk& talk, std::shared_ptr<RankBoard> board, Options options);
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  /// Calls `cancel` once something has failed; it holds what it cancels weakly.
  void guard(std::function<void()> cancel);
  /// Tells the other hosts at once what the board knows.
  void tell();

 private:
  void watch();
  void look_at_store();
  void look_at_waits();
  void answer();
  void ask(const std::vector<std::int64_t>& missing, RankStates& states);
  void ask_store(const std::vector<std::int64_t>& missing, RankStates& states);
  bool await_answers(const std::vector<std::int64_t>& ranks, RankStates& states);
  void cancel_all();

  StoreTalk& talk_;
  std::shared_ptr<RankBoard> board_;
  const Options options_;
  std::atomic<bool> has_answered_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::vector<std::function<void()>> cancels_;
  std::thread thread_;
};

}  // namespace megatron
