#include "megatron/parallel/transport/task_queue.h"

namespace megatron {

TaskQueue::~TaskQueue() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::exception_ptr TaskQueue::attempt(const std::function<void()>& body,
                                      const std::exception_ptr& earlier) {
  if (earlier) return earlier;
  try {
    body();
    return {};
  } catch (...) {
    return std::current_exception();
  }
}

void TaskQueue::run(const std::function<void()>& body) {
  std::unique_lock lock(mutex_);
  if (busy_ || !tasks_.empty()) {
    lock.unlock();
    return wait(post(body));
  }
  busy_ = true;
  const std::exception_ptr earlier = failure_;
  lock.unlock();
  const std::exception_ptr error = attempt(body, earlier);
  lock.lock();
  busy_ = false;
  failure_ = error;
  const bool others = !tasks_.empty();
  lock.unlock();
  if (others) changed_.notify_all();
  if (error) std::rethrow_exception(error);
}

std::shared_ptr<TaskQueue::Task> TaskQueue::post(std::function<void()> body) {
  auto task = std::make_shared<Task>(Task{.body = std::move(body)});
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(task);
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
  return task;
}

void TaskQueue::wait(const std::shared_ptr<Task>& task) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return task->done; });
  if (task->error) std::rethrow_exception(task->error);
}

void TaskQueue::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !busy_ && (ending_ || !tasks_.empty()); });
    if (tasks_.empty()) return;
    const std::shared_ptr<Task> task = tasks_.front();
    const std::exception_ptr earlier = failure_;
    busy_ = true;
    lock.unlock();
    const std::exception_ptr error = attempt(task->body, earlier);
    lock.lock();
    task->body = {};
    task->error = error;
    task->done = true;
    tasks_.pop_front();
    failure_ = error;
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace megatron
