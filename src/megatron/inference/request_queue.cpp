#include "megatron/inference/request_queue.h"

#include <deque>
#include <utility>

namespace megatron {

struct TextStream::State {
  std::mutex mutex;  ///< guards the members below
  std::condition_variable changed;
  std::deque<Update> updates;  ///< that nobody has read
  bool has_ended = false;
  std::exception_ptr error = {};
  RequestServer* server = nullptr;  ///< null once the request has ended
  RequestId request = 0;

  void push(const Update& update, const std::exception_ptr& failure) {
    const std::lock_guard lock(mutex);
    if (has_ended) return;
    if (!failure) updates.push_back(update);
    error = failure;
    has_ended = failure || update.finished;
    if (has_ended) server = nullptr;
    changed.notify_all();
  }
};

TextStream RequestServer::stream(TextRequest request) {
  const auto state = std::make_shared<TextStream::State>();
  const RequestId id = add_request(std::move(request),
                                   [state](const Update& update, const std::exception_ptr& error) {
                                     state->push(update, error);
                                   });
  const std::lock_guard lock(state->mutex);
  if (!state->has_ended) state->server = this;
  state->request = id;
  return TextStream(state);
}

std::optional<Update> TextStream::next() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return !state_->updates.empty() || state_->has_ended; });
  if (!state_->updates.empty()) {
    Update update = std::move(state_->updates.front());
    state_->updates.pop_front();
    return update;
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return std::nullopt;
}

std::optional<Generation> TextStream::finish() {
  while (std::optional<Update> update = next())
    if (update->finished) return std::move(update->finished);
  return std::nullopt;
}

void TextStream::cancel() {
  if (!state_) return;
  // The server ends its streams before it goes, for which it waits here.
  const std::lock_guard lock(state_->mutex);
  if (state_->has_ended) return;
  if (state_->server != nullptr) state_->server->cancel(state_->request);
  state_->server = nullptr;
  state_->has_ended = true;
  state_->updates.clear();
  state_->changed.notify_all();
}

RequestId RequestQueue::add_request(TextRequest request, OnNews on_news) {
  const std::lock_guard lock(mutex_);
  if (ended_) std::rethrow_exception(ended_);
  const RequestId id = next_request_++;
  listeners_.emplace(id, std::move(on_news));
  commands_.push_back({.kind = Command::Kind::add, .request = id, .text = std::move(request)});
  changed_.notify_all();
  return id;
}

void RequestQueue::cancel(RequestId request) {
  const std::lock_guard lock(mutex_);
  if (listeners_.erase(request) == 0) return;
  commands_.push_back({.kind = Command::Kind::cancel, .request = request});
  changed_.notify_all();
}

void RequestQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return listeners_.empty() || ended_; });
  if (ended_) std::rethrow_exception(ended_);
}

std::vector<Command> RequestQueue::take(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return !commands_.empty() || is_stopping_; });
  return std::exchange(commands_, {});
}

bool RequestQueue::has_requests() {
  const std::lock_guard lock(mutex_);
  return !listeners_.empty();
}

void RequestQueue::tell(const Update& update, const std::exception_ptr& error) {
  OnNews on_news;
  {
    const std::lock_guard lock(mutex_);
    const auto found = listeners_.find(update.request);
    if (found == listeners_.end()) return;
    on_news = found->second;
  }
  on_news(update, error);
  if (!error && !update.finished) return;
  const std::lock_guard lock(mutex_);
  listeners_.erase(update.request);
  changed_.notify_all();
}

void RequestQueue::end(const std::exception_ptr& error) {
  std::map<RequestId, OnNews> left;
  {
    const std::lock_guard lock(mutex_);
    ended_ = error;
    left = std::exchange(listeners_, {});
  }
  for (const auto& [request, on_news] : left) on_news({.request = request}, error);
  changed_.notify_all();
}

void RequestQueue::stop() {
  const std::lock_guard lock(mutex_);
  is_stopping_ = true;
  changed_.notify_all();
}

bool RequestQueue::is_stopping() {
  const std::lock_guard lock(mutex_);
  return is_stopping_;
}

}  // namespace megatron
