// Runs tasks one after the other. A blocking task runs on the caller's thread while nothing is
// pending; other tasks run on a thread that starts with the first of them. After a failure every
// later task fails with the same error.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace megatron {

class TaskQueue {
 public:
  struct Task {
    std::function<void()> body;
    bool done = false;
    std::exception_ptr error = {};
  };

  TaskQueue() = default;
  /// Finishes all pending tasks.
  ~TaskQueue();
  TaskQueue(const TaskQueue&) = delete;
  TaskQueue& operator=(const TaskQueue&) = delete;

  void run(const std::function<void()>& body);
  std::shared_ptr<Task> post(std::function<void()> body);
  /// Waits for the task and rethrows its exception.
  void wait(const std::shared_ptr<Task>& task);

 private:
  void work();
  std::exception_ptr attempt(const std::function<void()>& body, const std::exception_ptr& earlier);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> tasks_;
  bool busy_ = false;  ///< A task is running, on either thread.
  bool ending_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace megatron
