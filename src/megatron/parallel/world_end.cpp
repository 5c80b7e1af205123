// How a rank leaves its run, and how it ends after a failure.
#include <sys/eventfd.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "megatron/parallel/comm.h"
#include "megatron/parallel/rank_list.h"
#include "megatron/parallel/shared_memory/spin_wait.h"
#include "megatron/parallel/world.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// Limit for reaching rank 0 with a failure that occurs before the rendezvous.
constexpr seconds kEarlyConnectTimeout{10};
/// Limit for rank 0 to print a failure of this rank. It is shorter than kExitGracePeriod, after
/// which a rank prints what it knows.
constexpr seconds kPrintTimeout{3};
/// Limit for another rank to post the failure that made this one fail.
constexpr milliseconds kFirstCauseTimeout{3'000};
/// The same when all that is known is that a rank is silent.
constexpr milliseconds kGuessDelay{500};

}  // namespace

void World::leave() {
  if (!run_status_) return;
  // Rank 0 prints for the other ranks, and in most runs hosts the store.
  const bool is_last = environment_.rank == 0;
  if (is_last) {
    run_status_->leave(environment_.rank);
    wait_until_finished();
  }
  {
    const std::lock_guard lock(mutex_);
    is_leaving_ = true;
  }
  if (const auto failure = run_status_->first()) throw PeerFailed(*failure);
  stop_watching();
  if (!is_last) run_status_->leave(environment_.rank);
}

/// On rank 0: waits until all ranks have left.
void World::wait_until_finished() {
  const auto deadline = std::chrono::steady_clock::now() + timeout_;
  while (!run_status_->wait_until_finished(std::min<milliseconds>(timeout_, seconds(1)))) {
    const auto now = std::chrono::steady_clock::now();
    check_remaining_alive();
    if (now >= deadline)
      throw CommError("the end of this run: " + ranks_text(run_status_->remaining_ranks()) +
                      " did not end within " + time_text(timeout_) +
                      " after rank 0; if their work takes longer, raise "
                      "--distributed-timeout-minutes");
  }
}

/// Throws if the process of a rank that has not left has ended: it will never leave.
void World::check_remaining_alive() {
  std::shared_ptr<FailureNotice> notice;
  {
    const std::lock_guard lock(mutex_);
    notice = notice_;
  }
  if (!notice) return;
  std::vector<std::int64_t> ended;
  for (std::int64_t rank = 0; rank < environment_.world_size; ++rank)
    if (notice->has_process_ended(rank)) ended.push_back(rank);
  const std::vector<std::int64_t> ranks = run_status_->remaining_of(std::move(ended));
  if (!ranks.empty())
    throw CommError(ranks_text(ranks) + " died after the last step, before the end of the run");
}

/// Must precede leave(), because the store may end as soon as a rank has left.
void World::stop_watching() {
  {
    const std::lock_guard lock(mutex_);
    is_leaving_ = is_over_ = true;
    changed_.notify_all();
  }
  ::eventfd_write(wake_.number(), 1);
  if (watcher_.joinable()) watcher_.join();
  end_callback();
}

/// Waits for a callback under way. One that blocks ends the process.
void World::end_callback() {
  if (!callback_thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  if (!changed_.wait_for(lock, kExitGracePeriod, [&] { return !is_in_callback_; })) {
    const RankFailure failure = *known_failure_;
    lock.unlock();
    exit_now(failure);
  }
  lock.unlock();
  callback_thread_.join();
}

/// Returns the failure reported by another rank, if it arrives within `timeout`.
std::optional<RankFailure> World::known_failure(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [&] { return known_failure_.has_value(); });
  return known_failure_;
}

/// Connects a rank that fails before it has joined. Rank 0 hosts the store for a moment, so that
/// the other ranks, which look for it, receive the failure.
void World::connect_after_early_failure() {
  if (run_status_ || std::exchange(tried_to_connect_, true) || environment_.world_size == 1) return;
  try {
    store_ = open_store(environment_,
                        {.timeout = kEarlyConnectTimeout, .progress = [](const std::string&) {}});
    run_status_.emplace(*store_, environment_.world_size);
  } catch (const std::exception&) {
    run_status_.reset();  // no store: this rank prints its failure itself
    store_.reset();
  }
}

int World::end_in_failure(RankFailure failure, bool is_consequence, bool is_printed) {
  failure.rank = environment_.rank;
  failure.host = own_record({}).host;
  failure.is_of_others = is_consequence;
  if (constexpr std::string_view bug = "internal "; is_consequence && failure.text.starts_with(bug))
    failure.text.erase(0, bug.size());
  {
    const std::lock_guard lock(mutex_);
    own_failure_ = failure;
    is_printed_ = is_printed_ || is_printed;
    changed_.notify_all();
  }
  connect_after_early_failure();
  if (store_) store_->set_timeout(kStoreTimeout);
  std::optional<RankFailure> first = known_failure(time_for_first_cause(is_consequence));
  try {
    if (!first && run_status_) first = run_status_->post(failure);
    ensure_printed(first.value_or(failure), failure);
    stop_watching();
    wait_for_others();
  } catch (const StoreLost&) {
    {
      const std::lock_guard lock(mutex_);
      is_store_lost_ = true;
    }
    print_once(first.value_or(failure));
    stop_watching();
  }
  report_to_launcher(first.value_or(failure));
  return first.value_or(failure).code;
}

/// Returns how long to wait for the report of the rank that failed first. A dead rank has none.
milliseconds World::time_for_first_cause(bool is_consequence) {
  if (!is_consequence) return milliseconds(0);
  const std::lock_guard lock(mutex_);
  const bool is_guess = notice_ && !notice_->failure().empty() && !notice_->is_failure_explained();
  return is_guess ? kGuessDelay : kFirstCauseTimeout;
}

/// Returns once rank 0 has printed the first failure, or prints it.
void World::ensure_printed(const RankFailure& first, const RankFailure& own) {
  if (environment_.rank == 0 || !run_status_) {
    print_once(first);
    if (run_status_) run_status_->set_printed();
    return;
  }
  if (own.text.empty()) run_status_->set_printed();
  if (is_first_rank_dead(first)) return;  // its launcher prints how it has ended
  if (run_status_->wait_until_printed(kPrintTimeout) || first.rank != environment_.rank) return;
  print_once(first);
  run_status_->set_printed();
}

/// Whether rank 0 has died, as this host or a launcher has seen.
bool World::is_first_rank_dead(const RankFailure& first) {
  const std::lock_guard lock(mutex_);
  return (first.rank == 0 && first.is_of_others) || (notice_ && notice_->has_process_ended(0));
}

/// Keeps the store's host alive until the other ranks have read the failure.
void World::wait_for_others() {
  if (!run_status_) return;
  run_status_->leave(environment_.rank);
  if (hosts_store(environment_)) run_status_->wait_until_all_left(kPrintTimeout);
}

}  // namespace megatron
