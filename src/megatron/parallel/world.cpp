#include "megatron/parallel/world.h"

#include <c10/util/Logging.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <set>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/config/command_line.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/rank_list.h"
#include "megatron/parallel/shared_memory/spin_wait.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kRunPrefix = "run";  ///< Separates the run's keys from the rendezvous' keys.
/// Limit for this rank's main thread to end after a failure that this host knows of.
constexpr seconds kForcedExitTimeout{15};
/// Time for a rank to write what it was doing.
constexpr seconds kDumpTime{2};
/// Time between two looks of the watcher.
constexpr milliseconds kWatchPause{250};
/// Limit for rank 0 to find the same failure itself.
constexpr seconds kOwnCauseTimeout{1};
/// Limit for a call of this rank to fail with its own error after the store is lost.
constexpr milliseconds kOwnErrorTimeout{1500};
/// Time for other ranks or the launcher to report why a rank's connection has ended.
constexpr seconds kLostRankDelay{3};

/// Silences c10d's warnings about unresolvable addresses and closed connections, which come with a
/// stack trace. World reports what matters.
void quiet_c10d() {
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

/// The argument of a callback of on_failure().
std::string callback_text(const RankFailure& failure) {
  return "rank " + std::to_string(failure.rank) + " failed: " + failure.text;
}

/// Returns whether the exception is the consequence of another rank's failure.
bool is_consequence(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const CommError&) {
    return true;
  } catch (const StoreLost&) {
    return true;
  } catch (const PeerFailed&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

World::World(LaunchEnvironment environment, std::string command)
    : environment_(std::move(environment)),
      command_(std::move(command)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

ProcessOptions World::process_options() const {
  return {.rank = environment_.rank,
          .world_size = environment_.world_size,
          .host = hosts_.own_identity,
          .address = hosts_.own_address,
          .timeout = timeout_,
          .start = hosts_.start};
}

std::unique_ptr<Communicators> World::make_communicators(const ProcessOptions& options) const {
  return environment_.world_size > 1 ? make_process_communicators(*store(), options) : nullptr;
}

std::optional<RunStore> World::store() const {
  if (!store_) return {};
  return store_->with_prefix(kRunPrefix);
}

void World::connect(const ConnectionOptions& options) {
  quiet_c10d();
  timeout_ = options.timeout;
  tried_to_connect_ = true;
  store_ = open_store(environment_, options);
  run_status_.emplace(*store_, environment_.world_size);
}

void World::disconnect() {
  run_status_.reset();
  store_.reset();
}

void World::join(RendezvousOptions options) {
  if (!options.progress)
    options.progress = [](const std::string& line) { std::cerr << line << std::endl; };
  if (environment_.world_size == 1) {
    hosts_ = {.names = {own_record({}).host}, .host_of_rank = {0}};
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  while (true) {
    connect({options.timeout, options.progress});
    try {
      hosts_ = rendezvous(environment_, *store_, *run_status_, options);
      run_status_->report_disconnect_of(environment_.rank);
      // Connects while the store answers.
      run_status_->wait_for_change(environment_.rank == 0, milliseconds(0));
      watcher_ = std::thread([this] { run_watcher(); });
      return;
    } catch (const PeerFailed& error) {
      const std::lock_guard lock(mutex_);
      known_failure_ = error.failure();
      throw;
    } catch (const StoreLost&) {
      // Rank 0 ended during the rendezvous; its launcher may be restarting it.
      if (hosts_store(environment_) || std::chrono::steady_clock::now() > deadline) throw;
      disconnect();
    }
  }
}

void World::set_failure_notice(std::shared_ptr<FailureNotice> notice) {
  const std::lock_guard lock(mutex_);
  notice_ = std::move(notice);
  if (environment_.world_size == 1 && !watcher_.joinable())
    watcher_ = std::thread([this] { watch_single_process(); });
}

/// In a world of one process no wait for a peer ends after a failure, so the watcher exits.
void World::watch_single_process() {
  const auto failure = [this] {
    const std::lock_guard lock(mutex_);
    return notice_->failure();
  };
  while (failure().empty())
    if (is_ending(kWatchPause)) return;
  if (is_ending(kDumpTime)) return;
  exit_now({environment_.rank, "", 1, "error: " + failure()});
}

/// Runs in the watcher's thread. A watcher that fails itself ends the rank, which would otherwise
/// wait for others without a limit.
void World::run_watcher() noexcept {
  try {
    watch();
  } catch (const std::exception& error) {
    exit_now(
        {environment_.rank, "", 1,
         std::string("error: the thread that watches the other ranks failed: ") + error.what()});
  }
}

/// Looks for a failure of another rank and makes this rank end after one.
void World::watch() {
  // At most a thousand requests per second reach a store that cannot be watched.
  const milliseconds long_pause = std::max(kWatchPause, milliseconds(environment_.world_size));
  while (!is_ending(milliseconds(0))) {
    exit_if_overdue();
    try {
      const milliseconds pause = run_status_->is_watched() ? kWatchPause : long_pause;
      if (!run_status_->wait_for_change(environment_.rank == 0, pause, wake_.number())) continue;
      if (is_ending(milliseconds(0))) return;
      if (const auto failure = run_status_->watched_first()) return handle(*failure);
      if (environment_.rank == 0) post_lost_ranks();
    } catch (const std::exception& error) {  // an unreadable status counts as lost
      return handle_lost_store(error.what());
    }
  }
}

/// On the rank that hosts the store: reports ranks whose connection has ended, unless their failure
/// is reported with its cause in time.
void World::post_lost_ranks() {
  const std::vector<std::int64_t> lost = run_status_->lost_ranks();
  const auto now = std::chrono::steady_clock::now();
  if (lost.empty()) return;
  if (!lost_since_) lost_since_ = now;
  if (now - *lost_since_ < kLostRankDelay) return;
  std::set<std::string> hosts;
  for (const std::int64_t rank : lost)
    hosts.insert(hosts_.names.at(
        static_cast<std::size_t>(hosts_.host_of_rank.at(static_cast<std::size_t>(rank)))));
  run_status_->post({environment_.rank, "", 1,
                     "error: the connection to " + ranks_text(lost) + " on " + joined_text(hosts) +
                         " is lost: the process died, the host is down or the network is cut",
                     true});
}

bool World::is_ending(milliseconds pause) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, pause, [&] { return is_over_ || is_leaving_; });
}

/// Ends the process by force when its main thread has not ended in time after a failure.
void World::exit_if_overdue() {
  RankFailure failure;
  {
    const std::lock_guard lock(mutex_);
    const std::string text = notice_ ? notice_->failure() : "";
    if (!own_failure_ && text.empty()) return;
    const auto now = std::chrono::steady_clock::now();
    if (!failure_since_) failure_since_ = now;
    if (now - *failure_since_ < kForcedExitTimeout) return;
    failure = own_failure_.value_or(RankFailure{
        environment_.rank, "", 1, "error: " + text + "; this rank did not end by itself", true});
  }
  exit_now(failure);
}

/// Prints the cause unless another rank does, and ends the process.
void World::exit_now(const RankFailure& failure) {
  print_once(failure);
  report_to_launcher(failure);
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(failure.code);
}

/// Handles a store whose host has ended or does not answer. Prefers the error of this rank's own
/// call, which is more specific, when it arrives in time.
void World::handle_lost_store(const std::string& reason) {
  RankFailure failure{0, "", 1, "error: " + reason, true};
  {
    std::unique_lock lock(mutex_);
    if (is_leaving_ || is_over_) return;
    is_store_lost_ = true;
    if (changed_.wait_for(lock, kOwnErrorTimeout, [&] { return own_failure_.has_value(); }))
      failure = *own_failure_;
  }
  handle(failure);
}

/// Runs in the watcher's thread after a failure of this or another rank.
void World::handle(const RankFailure& failure) {
  store_->set_timeout(kStoreTimeout);
  std::unique_lock lock(mutex_);
  known_failure_ = failure;
  changed_.notify_all();
  const bool is_ours = failure.rank == environment_.rank && own_failure_.has_value();
  if (notice_ && failure.is_of_others) notice_->mark_as_guess();
  if (const auto callback = std::exchange(callback_, nullptr); callback && !is_ours) {
    is_in_callback_ = true;
    callback_thread_ = std::thread(
        [this, callback, text = callback_text(failure)] { run_callback(callback, text); });
  }
  if (environment_.rank == 0 && !is_ours) {
    changed_.wait_for(lock, kOwnCauseTimeout, [&] { return own_failure_.has_value(); });
    lock.unlock();
    print_once(failure);
    lock.lock();
  }
  if (changed_.wait_for(lock, is_ours ? kForcedExitTimeout : kExitGracePeriod,
                        [&] { return is_over_; }))
    return;
  lock.unlock();
  exit_now(failure);
}

/// Runs in a thread of its own, without the lock: a callback that blocks must not keep the watcher
/// from ending this rank.
void World::run_callback(const std::function<void(const std::string&)>& callback,
                         const std::string& text) noexcept {
  try {
    callback(text);
  } catch (...) {
    // Expected of a callback that fails: the waits of this rank continue, and the watcher ends it
    // after the grace period.
  }
  const std::lock_guard lock(mutex_);
  is_in_callback_ = false;
  changed_.notify_all();
}

/// Returns whether this rank reports a failure that rank 0 cannot print: one rank per host does.
bool World::is_reporter() {
  if (!is_reporter_) {
    const std::int64_t reporter =
        environment_.node_rank == 0 && !environment_.agent_store && environment_.launcher_port == 0
            ? 1
            : 0;
    is_reporter_ = notice_ ? notice_->claim_report() : environment_.local_rank == reporter;
  }
  return *is_reporter_;
}

std::string World::failure_text(const RankFailure& failure, bool is_own) const {
  if (is_own || failure.is_of_others) return failure.text;
  return "rank " + std::to_string(failure.rank) +
         (failure.host.empty() ? "" : " on " + failure.host) +
         (failure.text.empty() ? " ended with exit code " + std::to_string(failure.code)
                               : ": " + failure.text);
}

/// Prints the failure once. Called on rank 0 and on ranks that rank 0 cannot print for.
void World::print_once(const RankFailure& failure) {
  bool is_own = false;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_printed_, true) || failure.text.empty()) return;
    if (is_store_lost_ && failure.is_of_others && !is_reporter()) return;
    is_own =
        failure.rank == environment_.rank || (own_failure_ && own_failure_->text == failure.text);
  }
  if (may_print()) report_failure(command_, failure_text(failure, is_own));
}

/// Returns whether no other rank prints the failure; true if the store does not answer.
bool World::may_print() {
  if (!run_status_) return true;
  try {
    return run_status_->claim_printing(environment_.rank);
  } catch (const StoreLost&) {
    return true;
  }
}

/// Reports to the launcher that another rank's failure ends this rank, so that the launcher does
/// not take this rank for the cause. The line is written in one call.
void World::report_to_launcher(const RankFailure& first) const {
  if (!environment_.root_cause_pipe || (first.rank == environment_.rank && !first.is_of_others))
    return;
  const std::string why = failure_text(first, /*is_own=*/false);
  const std::string line = std::to_string(environment_.rank) + " " +
                           why.substr(0, std::min<std::size_t>(why.find('\n'), 2000)) + "\n";
  const ssize_t written = ::write(*environment_.root_cause_pipe, line.data(), line.size());
  (void)written;  // the launcher may have ended
}

void World::on_failure(std::function<void(const std::string&)> callback) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !is_in_callback_; });
  callback_ = std::move(callback);
  if (!callback_ || !known_failure_) return;
  const auto late = std::exchange(callback_, nullptr);
  const std::string text = callback_text(*known_failure_);
  lock.unlock();
  late(text);
}

int World::end_in_failure(const std::exception_ptr& exception) {
  const CommandFailure failure = command_failure(exception);
  return end_in_failure({.code = failure.code, .text = failure.text}, is_consequence(exception),
                        false);
}

int World::end_in_failure(int code) {
  return end_in_failure({.code = code, .text = {}}, false, true);
}

int run_rank(const std::string& command, const std::function<int(World&)>& body,
             const LaunchEnvironment& environment) {
  World world(environment, command);
  if (environment.world_size == 1) return body(world);
  try {
    const int code = body(world);
    const bool is_clean_exit = code == 0 || code > 128;
    if (!is_clean_exit) return world.end_in_failure(code);
    world.leave();
    return code;
  } catch (const HelpRequested&) {
    if (environment.rank == 0) throw;
    return 0;
  } catch (...) {
    return world.end_in_failure(std::current_exception());
  }
}

}  // namespace megatron
