#include "megatron/inference/request_server.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/inference/messages.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {

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
  if (thread_.joinable()) thread_.join();
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

}  // namespace megatron
