// A thread pool that transforms a sequence of inputs and delivers the outputs in input order. The
// data loader and preprocess-data use it.
//
//   OrderedPool<Line, Document> pool({.workers = 4, .depth = 16}, read_line, parse_line);
//   while (std::optional<Document> document = pool.next()) ...
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "megatron/base/thread_limit.h"

namespace megatron {

struct OrderedPoolOptions {
  std::int64_t workers = 1;  ///< number of threads; 0: next() does all work itself
  std::int64_t depth = 4;    ///< largest number of outputs in progress or waiting
  /// Called when the pool ends early, from another thread than the source: makes a source that
  /// waits return.
  std::function<void()> wake_source = {};
};

/// Calls `source` from one thread at a time, in order, until it returns nullopt, and `transform`
/// from all workers concurrently. If either throws, next() rethrows the exception in the place of
/// that output, and the sequence ends there. Only one thread may call next().
template <class Input, class Output>
class OrderedPool {
 public:
  using Source = std::function<std::optional<Input>()>;
  using Transform = std::function<Output(Input)>;

  OrderedPool(OrderedPoolOptions options, Source source, Transform transform)
      : depth_(std::max<std::size_t>(1, options.depth)),
        wake_source_(std::move(options.wake_source)),
        source_(std::move(source)),
        transform_(std::move(transform)) {
    try {
      for (std::int64_t worker = 0; worker < options.workers; ++worker)
        threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      stop();
      throw thread_error("a thread that reads or prepares data", error);
    }
  }
  OrderedPool(const OrderedPool&) = delete;
  OrderedPool& operator=(const OrderedPool&) = delete;

  ~OrderedPool() { stop(); }

  /// Returns the next output, or nullopt at the end.
  std::optional<Output> next() {
    if (threads_.empty()) return next_inline();
    std::unique_lock lock(state_mutex_);
    ready_.wait(lock, [this] { return slots_.empty() ? ended_ : slots_.front().done; });
    if (slots_.empty()) return std::nullopt;
    Slot slot = std::move(slots_.front());
    slots_.pop_front();
    ++first_ticket_;
    if (slot.error) {
      stopped_ = ended_ = true;
      slots_.clear();
    }
    lock.unlock();
    space_.notify_all();
    if (slot.error) std::rethrow_exception(slot.error);
    return std::move(slot.output);
  }

 private:
  /// Ends the threads.
  void stop() {
    {
      const std::lock_guard lock(state_mutex_);
      stopped_ = true;
    }
    space_.notify_all();
    if (wake_source_) wake_source_();
    for (std::thread& thread : threads_) thread.join();
  }

  struct Slot {
    bool done = false;
    std::optional<Output> output;
    std::exception_ptr error;
  };

  std::optional<Output> next_inline() {
    if (ended_) return std::nullopt;
    std::optional<Input> input;
    try {
      input = source_();
      if (input) return transform_(std::move(*input));
    } catch (...) {
      ended_ = true;
      throw;
    }
    ended_ = true;
    return std::nullopt;
  }

  void work() {
    for (;;) {
      std::uint64_t ticket = 0;
      std::optional<Input> input;
      if (!take(ticket, input)) return;
      Slot slot{.done = true, .output = {}, .error = {}};
      try {
        slot.output = transform_(std::move(*input));
      } catch (...) {
        slot.error = std::current_exception();
      }
      deliver(ticket, std::move(slot));
    }
  }

  /// Waits for a free slot and reads its input. Returns false at the end.
  bool take(std::uint64_t& ticket, std::optional<Input>& input) {
    const std::lock_guard source_lock(source_mutex_);
    {
      std::unique_lock lock(state_mutex_);
      space_.wait(lock, [this] { return stopped_ || ended_ || slots_.size() < depth_; });
      if (stopped_ || ended_) return false;
    }
    std::exception_ptr error;
    try {
      input = source_();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(state_mutex_);
    if (stopped_) return false;
    if (!input) {
      ended_ = true;
      if (error) slots_.push_back({.done = true, .output = {}, .error = error});
      ready_.notify_all();
      return false;
    }
    ticket = first_ticket_ + slots_.size();
    slots_.emplace_back();
    return true;
  }

  void deliver(std::uint64_t ticket, Slot slot) {
    const std::lock_guard lock(state_mutex_);
    if (stopped_) return;
    slots_[ticket - first_ticket_] = std::move(slot);
    ready_.notify_all();
  }

  const std::size_t depth_;
  std::function<void()> wake_source_;
  Source source_;
  Transform transform_;
  std::mutex source_mutex_;  ///< taken before state_mutex_
  std::mutex state_mutex_;
  std::condition_variable space_, ready_;
  std::deque<Slot> slots_;  ///< slots_[i] holds ticket first_ticket_ + i
  std::uint64_t first_ticket_ = 0;
  bool ended_ = false, stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace megatron
