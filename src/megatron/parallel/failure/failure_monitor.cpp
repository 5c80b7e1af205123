#include "megatron/parallel/failure/failure_monitor.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <set>
#include <utility>

#include "megatron/base/machine.h"
#include "megatron/control/store_client.h"
#include "megatron/parallel/rank_list.h"
#include "megatron/parallel/shared_memory/spin_wait.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

constexpr const char* kFailureKey = "failure";
/// What a published failure begins with; see HostStatus::fail().
const std::string kExplained = "+", kUnexplained = "-";
/// The number of requests for states, the last one after which the wait continues, and the first
/// rank that made one.
constexpr const char *kStatesRequestedKey = "states-requested", *kStatesKnownKey = "states-known",
                     *kFirstRequesterKey = "states-first-requester";
constexpr milliseconds kInterval{200};
/// Where the store cannot be watched, it serves the polls of all ranks, so large runs poll less
/// often.
constexpr milliseconds kLongestPollInterval{1'000};
/// Limit for ranks on other hosts to answer.
constexpr milliseconds kStatesTimeout{3'000};
/// Limit for the rank that has claimed a request to answer it.
constexpr milliseconds kAnswerTimeout{1'500};
/// Limit for the first requester to publish its failure.
constexpr milliseconds kFirstRequesterTimeout{6'000};
/// Limit for the store to answer after a failure.
constexpr milliseconds kStoreTimeoutAfterFailure{5'000};

/// Returns the number at the beginning of a text; 0 if there is none.
std::int64_t request_of(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

std::string states_key(std::int64_t host_leader) { return "states/" + std::to_string(host_leader); }

}  // namespace

FailureMonitor::FailureMonitor(RunStore store, std::shared_ptr<HostStatus> host_status,
                               Options options)
    : store_(std::move(store)),
      host_status_(std::move(host_status)),
      options_(std::move(options)),
      limit_(options_.timeout),
      poll_interval_(
          std::clamp(milliseconds(static_cast<std::int64_t>(options_.host_leader.size())),
                     kInterval, kLongestPollInterval)),
      thread_([this] { watch(); }) {
  host_status_->set_state_query([this](const std::vector<std::int64_t>& missing,
                                       RankStates& states) { request_states(missing, states); });
}

/// After a failure the store may be silent. The shorter limit ends the thread's current call soon.
FailureMonitor::~FailureMonitor() {
  if (host_status_->failed() || std::uncaught_exceptions() > 0)
    store_.set_timeout(kStoreTimeoutAfterFailure);
  host_status_->set_state_query(nullptr);
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void FailureMonitor::add_cancel(std::function<void()> cancel) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_cancelled_) return cancels_.push_back(std::move(cancel));
  }
  cancel();
}

void FailureMonitor::publish_failure() {
  try {
    if (!host_status_->failed()) return;
    store_.set_timeout(kStoreTimeoutAfterFailure);
    store_.compare_set(kFailureKey, "",
                       (host_status_->is_failure_explained() ? kExplained : kUnexplained) +
                           host_status_->failure());
  } catch (const std::exception&) {
    // Expected when the store ended with its host. The other ranks notice that by themselves.
  }
}

void FailureMonitor::take_failure(const std::string& published) {
  host_status_->fail(published.substr(1), published.starts_with(kExplained));
}

/// Returns whether this host or, as it then records, another one has failed.
bool FailureMonitor::has_failed() {
  if (host_status_->failed()) return true;
  const auto failure = store_.find(kFailureKey);
  if (failure) take_failure(*failure);
  return failure.has_value();
}

/// A rank's groups end before rank 0 closes the store, so losing the store earlier is a failure.
void FailureMonitor::poll_store() {
  try {
    const Updates updates = read_updates();
    if (updates.failure) return take_failure(*updates.failure);
    answer_request(updates.request);
  } catch (const std::exception& error) {
    host_status_->fail(error.what());
  }
}

/// Checks the limit of waits on channels, which do not check it themselves.
void FailureMonitor::check_timeouts() {
  WaitTable& waits = host_status_->waits();
  if (waits.overdue(options_.rank, options_.timeout).empty()) limit_ = options_.timeout;
  const std::vector<std::int64_t> missing = waits.overdue(options_.rank, limit_);
  if (missing.empty()) return;
  TimedOutRank waiter{options_.rank, missing, options_.timeout};
  if (limit_ > options_.timeout) waiter.waited = limit_;
  try {
    const std::string report = report_hang(*host_status_, waiter);
    if (!report.empty()) return host_status_->fail(report);
    limit_ += decision_interval(options_.timeout);
    // Ranks that wait for this verdict now come to their own, from the same states.
    if (own_request_ > 0) store_.set(kStatesKnownKey, std::to_string(own_request_));
  } catch (const std::exception& error) {
    // What other hosts wrote may be unreadable; the wait has been too long all the same.
    host_status_->fail(ranks_text(missing) +
                       " did not arrive in time, and what blocks them is "
                       "unknown: " +
                       error.what());
  }
}

FailureMonitor::Updates FailureMonitor::read_updates() {
  if (!std::exchange(is_watch_tried_, true))
    watch_ = store_.watch({kFailureKey, kStatesRequestedKey});
  try {
    if (watch_) {
      watch_->wait(milliseconds(0));
      return {watch_->value(0), request_of(watch_->value(1).value_or("0"))};
    }
  } catch (const StoreLost&) {
    watch_.reset();  // the calls of the store itself say what has become of it
  }
  const auto now = std::chrono::steady_clock::now();
  if (now < next_poll_) return {};
  next_poll_ = now + poll_interval_;
  return {store_.find(kFailureKey), last_request()};
}

std::int64_t FailureMonitor::last_request() {
  return request_of(store_.find(kStatesRequestedKey).value_or("0"));
}

void FailureMonitor::answer_request(std::int64_t request) {
  const std::lock_guard lock(request_mutex_);
  // Another thread may have heard of a later one.
  if (request <= host_status_->answered_request() || request < seen_request_) return;
  if (std::exchange(seen_request_, request) != request) request_timer_ = {};
  const bool is_claimed = host_status_->claim_states_request(request);
  if (is_claimed || request_timer_.elapsed() > kAnswerTimeout) publish_states(request);
}

/// Publishes the states of all ranks of this host, because some may be unable to.
void FailureMonitor::publish_states(std::int64_t request) {
  RankStates states = host_status_->states();
  std::vector<std::int64_t> ranks;
  for (const auto& [rank, state] : states) ranks.push_back(rank);
  add_stacks(*host_status_, ranks, states);
  for (auto& [rank, state] : states) state.host = host_name();
  const std::int64_t leader = options_.host_leader[static_cast<std::size_t>(options_.rank)];
  store_.set(states_key(leader), std::to_string(request) + "\n" + write_states(states));
  host_status_->set_answered_request(request);
}

void FailureMonitor::request_states(const std::vector<std::int64_t>& missing, RankStates& states) {
  try {
    query_states(missing, states);
  } catch (const std::exception& error) {
    host_status_->fail(error.what());  // ranks cannot synchronize without the store
  }
}

void FailureMonitor::query_states(const std::vector<std::int64_t>& missing, RankStates& states) {
  const std::lock_guard lock(query_mutex_);
  const std::chrono::milliseconds usual_timeout = store_.timeout();
  store_.set_timeout(kStoreTimeoutAfterFailure);
  const std::string own = std::to_string(options_.rank);
  std::optional<std::int64_t> request;
  if (store_.compare_set(kFirstRequesterKey, "", own) != own) request = await_first_requester();
  if (host_status_->failed()) return;
  if (!request) {
    request = own_request_ = store_.add(kStatesRequestedKey, 1);
    publish_states(*request);  // the thread that answers requests may be this one
  }
  for (std::vector<std::int64_t> unknown = unknown_ranks(missing, states); !unknown.empty();
       unknown = unknown_ranks(missing, states)) {
    if (wait_for_states(unknown, *request, states)) continue;
    for (const std::int64_t rank : unknown_ranks(missing, states))
      states[rank].kind = RankState::Kind::silent;
  }
  if (!host_status_->failed()) store_.set_timeout(usual_timeout);
}

std::optional<std::int64_t> FailureMonitor::await_first_requester() {
  const auto last_known = [&] { return request_of(store_.find(kStatesKnownKey).value_or("0")); };
  const std::int64_t before = last_known();
  for (SuspendAwareTimer timer; timer.elapsed() < kFirstRequesterTimeout;
       std::this_thread::sleep_for(kInterval / 4)) {
    if (has_failed()) break;
    answer_request(last_request());  // the thread that answers requests may be this one
    if (const std::int64_t known = last_known(); known > before) return known;
  }
  return std::nullopt;
}

/// Waits until the states of all `ranks` are known, as they are after the request. Returns false
/// after a timeout or a failure.
bool FailureMonitor::wait_for_states(const std::vector<std::int64_t>& ranks, std::int64_t request,
                                     RankStates& states) {
  for (SuspendAwareTimer timer; timer.elapsed() < kStatesTimeout;
       std::this_thread::sleep_for(kInterval / 4)) {
    if (has_failed()) return false;
    std::set<std::int64_t> hosts;  // their first ranks
    for (const std::int64_t rank : ranks) {
      if (!states.contains(rank))
        hosts.insert(options_.host_leader[static_cast<std::size_t>(rank)]);
    }
    for (const std::int64_t host : hosts) {
      const auto text = store_.find(states_key(host));
      if (text && request_of(*text) >= request)
        states.merge(read_states(text->substr(text->find('\n') + 1),
                                 static_cast<std::int64_t>(options_.host_leader.size())));
    }
    if (std::ranges::all_of(ranks, [&](std::int64_t rank) { return states.contains(rank); }))
      return true;
  }
  return false;
}

void FailureMonitor::cancel_all() {
  std::vector<std::function<void()>> cancels;
  {
    const std::lock_guard lock(mutex_);
    is_cancelled_ = true;
    cancels = cancels_;
  }
  for (const auto& cancel : cancels) cancel();
}

void FailureMonitor::watch() {
  while (true) {
    if (!host_status_->failed()) poll_store();
    if (!host_status_->failed()) check_timeouts();
    if (host_status_->failed()) break;
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, kInterval, [this] { return ending_; })) return;
  }
  publish_failure();
  cancel_all();
}

}  // namespace megatron
