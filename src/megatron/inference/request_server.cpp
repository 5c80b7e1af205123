#include "megatron/inference/request_server.h"

#include <deque>
#include <stdexcept>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/messages.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {

struct UpdateStream::State {
  std::mutex mutex;  ///< guards the members below
  std::condition_variable changed;
  std::deque<News> unread = {};
  bool has_ended = false;           ///< and gets no more news
  RequestServer* server = nullptr;  ///< of a request that has not ended
  RequestId request = 0;
};

RequestId RequestServer::add_request(TextRequest request, OnNews on_news) {
  MEGATRON_CHECK(is_leader(), "rank ", ranks_.axis.rank, " of ", ranks_.axis.name,
                 " gets a request, and rank 0 takes them");
  const std::lock_guard lock(mutex_);
  if (ended_) std::rethrow_exception(ended_);
  const RequestId id = next_request_++;
  listeners_.emplace(id, std::move(on_news));
  commands_.push_back({.request = id, .text = std::move(request)});
  changed_.notify_all();
  return id;
}

void RequestServer::cancel(RequestId request) {
  const std::lock_guard lock(mutex_);
  if (listeners_.erase(request) == 0) return;
  commands_.push_back({.kind = ServingCommand::Kind::cancel, .request = request});
  changed_.notify_all();
}

void RequestServer::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return listeners_.empty() || ended_; });
  if (ended_) std::rethrow_exception(ended_);
}

void RequestServer::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ != nullptr; });
  if (has_failed_) std::rethrow_exception(ended_);
}

bool RequestServer::wait_for(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return ended_ != nullptr; });
}

void RequestServer::start() {
  thread_ = std::thread([this] { run(); });
}

void RequestServer::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    is_leaving_ = is_leader() || std::uncaught_exceptions() > num_exceptions_;
  }
  changed_.notify_all();
  thread_.join();
}

void RequestServer::run() noexcept {
  std::exception_ptr failure;
  try {
    for (bool is_busy = false;; is_busy = step()) {
      ServingRound round = next_round(is_busy);
      if (round.stops) break;
      now_s_ = round.now_s;
      for (ServingCommand& command : round.commands) apply(std::move(command));
    }
  } catch (...) {
    failure = std::current_exception();
  }
  end(failure);
}

ServingRound RequestServer::next_round(bool is_busy) {
  ServingRound round;
  {
    std::unique_lock lock(mutex_);
    if (is_leader())
      changed_.wait_for(lock, is_busy ? std::chrono::milliseconds(0) : ranks_.heartbeat,
                        [&] { return !commands_.empty() || is_leaving_; });
    round = {
        .commands = std::exchange(commands_, {}), .now_s = ranks_.clock(), .stops = is_leaving_};
  }
  if (is_leader())
    for (ServingCommand& command : round.commands) route(command);
  else if (round.stops)
    return round;
  if (ranks_.axis.size == 1) return round;
  return from_bytes<ServingRound>(
      broadcast_strings({ranks_.axis, ranks_.device}, {to_bytes(std::move(round))}).front());
}

void RequestServer::tell(const News& news) {
  const RequestId request = news.update.request;
  OnNews on_news;
  {
    const std::lock_guard lock(mutex_);
    const auto found = listeners_.find(request);
    if (found == listeners_.end()) return;
    on_news = found->second;
  }
  on_news(news);
  if (!news.is_last()) return;
  const std::lock_guard lock(mutex_);
  listeners_.erase(request);
  changed_.notify_all();
}

void RequestServer::end(const std::exception_ptr& failure) {
  std::map<RequestId, OnNews> left;
  {
    const std::lock_guard lock(mutex_);
    has_failed_ = failure != nullptr;
    ended_ = failure ? failure
                     : std::make_exception_ptr(
                           std::runtime_error("the engine was stopped before the request ended"));
    left = std::exchange(listeners_, {});
  }
  for (const auto& [request, on_news] : left)
    on_news({.update = {.request = request}, .error = ended_});
  changed_.notify_all();
}

UpdateStream RequestServer::stream(TextRequest request) {
  const auto state = std::make_shared<UpdateStream::State>();
  const RequestId id = add_request(std::move(request), [state](const News& news) {
    const std::lock_guard lock(state->mutex);
    if (state->has_ended) return;  // it was cancelled while this call was under way
    state->unread.push_back(news);
    state->has_ended = state->has_ended || news.is_last();
    state->changed.notify_all();
  });
  const std::lock_guard lock(state->mutex);
  state->server = this;
  state->request = id;
  return UpdateStream(state);
}

std::optional<Update> UpdateStream::next() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return !state_->unread.empty() || state_->has_ended; });
  if (state_->unread.empty()) return std::nullopt;
  const News& news = state_->unread.front();
  if (news.error) std::rethrow_exception(news.error);
  std::optional<Update> update = news.update;
  state_->unread.pop_front();
  return update;
}

void UpdateStream::cancel() {
  if (!state_) return;
  // The server exists while has_ended is false: before it is destroyed, its thread sets has_ended
  // of every stream that is left, for which it must lock this mutex.
  const std::lock_guard lock(state_->mutex);
  if (!state_->has_ended) state_->server->cancel(state_->request);
  state_->has_ended = true;
  state_->unread.clear();
  state_->changed.notify_all();
}

}  // namespace megatron
