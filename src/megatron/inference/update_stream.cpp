#include "megatron/inference/update_stream.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

namespace megatron {

struct UpdateStream::State {
  std::mutex mutex;  ///< guards the members below
  std::condition_variable changed;
  std::deque<News> unread = {};
  bool has_ended = false;           ///< and gets no more news
  RequestServer* server = nullptr;  ///< of a request that has not ended
  RequestId request = 0;
};

UpdateStream RequestServer::stream(TextRequest request) {
  const auto state = std::make_shared<UpdateStream::State>();
  const RequestId id = add_request(std::move(request), [state](const News& news) {
    const std::lock_guard lock(state->mutex);
    if (state->has_ended) return;  // it was cancelled while this call was under way
    state->unread.push_back(news);
    state->has_ended = news.is_last();
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
