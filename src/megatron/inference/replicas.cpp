#include "megatron/inference/replicas.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "megatron/inference/messages.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {
namespace {

/// How long a round waits for news of this rank's replica, if it has requests. The news of the
/// other replicas are delayed as long, because a round gathers the news of all.
constexpr std::chrono::milliseconds kNewsWait{5};

}  // namespace

struct ReplicaSet::Outbox {
  std::mutex mutex;  ///< guards the members below
  std::condition_variable changed;
  std::vector<News> news = {};
};

ReplicaSet::ReplicaSet(RequestServer& own, const ServingRanks& replicas,
                       const SchedulerOptions& scheduler)
    : RequestServer(replicas),
      own_(own),
      router_({.num_replicas = static_cast<std::size_t>(replicas.axis.size),
               .block_size = scheduler.block_size,
               .num_blocks = scheduler.prefix_cache ? scheduler.num_blocks : 0}),
      outbox_(std::make_shared<Outbox>()) {
  start();
}

ReplicaSet::~ReplicaSet() {
  stop();
  for (const auto& [request, own] : own_numbers_) own_.cancel(own);
}

void ReplicaSet::route(ServingCommand& command) {
  const bool adds = command.kind == ServingCommand::Kind::add;
  if (adds) {
    const SamplingParams& params = command.text.params;
    routes_[command.request] = router_.choose(command.text.prompt, params.max_new_tokens,
                                              std::max(params.num_samples(), params.num_beams));
  }
  const auto found = routes_.find(command.request);
  command.replica = found == routes_.end() ? -1 : static_cast<std::int64_t>(found->second.replica);
  if (adds || found == routes_.end()) return;
  router_.release(found->second);
  routes_.erase(found);
}

void ReplicaSet::apply(ServingCommand command) {
  const RequestId request = command.request;
  if (command.replica != ranks_.axis.rank) return;
  if (command.kind == ServingCommand::Kind::add) {
    command.text.deadline_s += ranks_.clock() - now_s();  // hosts have different clocks
    const auto on_news = [outbox = outbox_, request](News news) {
      news.update.request = request;
      const std::lock_guard lock(outbox->mutex);
      outbox->news.push_back(std::move(news));
      outbox->changed.notify_all();
    };
    own_numbers_[request] = own_.add_request(std::move(command.text), on_news);
  } else if (const auto found = own_numbers_.extract(request)) {
    own_.cancel(found.mapped());
  }
}

bool ReplicaSet::step() {
  // If this replica has failed, this rank fails, and the errors of the other ranks name it. A
  // replica without requests has no news that would tell.
  if (own_.wait_for(std::chrono::milliseconds(0))) own_.wait();
  std::vector<News> own;
  {
    std::unique_lock lock(outbox_->mutex);
    if (!own_numbers_.empty())
      outbox_->changed.wait_for(lock, kNewsWait, [&] { return !outbox_->news.empty(); });
    own = std::exchange(outbox_->news, {});
  }
  for (const News& news : own)
    if (news.is_last()) own_numbers_.erase(news.update.request);
  const std::string bytes = to_bytes(std::move(own));  // throws if the replica fails meanwhile
  for (const std::string& some : gather_strings({ranks_.axis, ranks_.device}, bytes)) {
    for (const News& news : from_bytes<std::vector<News>>(some)) {
      if (const auto ended = routes_.extract(news.is_last() ? news.update.request : -1))
        router_.release(ended.mapped());
      tell(news);
    }
  }
  return !routes_.empty();
}

}  // namespace megatron
