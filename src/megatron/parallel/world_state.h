// Implementation of World: joins the run, watches for failures in a thread of its own, reports this
// rank's failure and leaves.
#pragma once

#include <sys/eventfd.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "megatron/base/descriptor.h"
#include "megatron/parallel/failure/failure_notice.h"
#include "megatron/parallel/rendezvous/run_connection.h"
#include "megatron/parallel/world.h"

namespace megatron {

/// Limit for this rank's main thread to end after another rank's failure.
inline constexpr std::chrono::seconds kExitGracePeriod{5};
/// Limit for the store to answer after a failure.
inline constexpr std::chrono::seconds kStoreTimeout{5};

class World::State {
 public:
  State(LaunchEnvironment environment, std::string command)
      : environment_(std::move(environment)), command_(std::move(command)) {}
  ~State() { stop_watching(); }

  void join(RendezvousOptions options);
  void leave();
  int end_in_failure(RankFailure failure, bool is_consequence, bool is_printed);
  void on_failure(std::function<void(const std::string&)> callback);
  void set_failure_notice(std::shared_ptr<FailureNotice> notice);

  const LaunchEnvironment& environment() const { return environment_; }
  const RunHosts& hosts() const { return hosts_; }
  const std::optional<RunStore>& store() const { return store_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  void connect(const ConnectionOptions& options);
  void disconnect();
  void connect_after_early_failure();

  void watch_single_process();
  void run_watcher() noexcept;
  void watch();
  bool is_ending(std::chrono::milliseconds pause);
  void exit_if_overdue();
  void post_lost_ranks();
  void handle_lost_store(const std::string& reason);
  void handle(const RankFailure& failure);
  void run_callback(const std::function<void(const std::string&)>& callback,
                    const std::string& text) noexcept;
  [[noreturn]] void exit_now(const RankFailure& failure);
  void stop_watching();
  void end_callback();

  std::optional<RankFailure> known_failure(std::chrono::milliseconds timeout);
  void print_once(const RankFailure& failure);
  bool is_reporter();
  bool may_print();
  void report_to_launcher(const RankFailure& first) const;
  std::string failure_text(const RankFailure& failure, bool is_own) const;
  void ensure_printed(const RankFailure& first, const RankFailure& own);
  bool is_first_rank_dead(const RankFailure& first);
  std::chrono::milliseconds time_for_first_cause(bool is_consequence);
  void wait_for_others();
  void wait_until_finished();
  void check_remaining_alive();

  const LaunchEnvironment environment_;
  const std::string command_;
  RunHosts hosts_;
  std::chrono::milliseconds timeout_{600'000};

  std::optional<std::chrono::steady_clock::time_point> lost_since_;  ///< used by the watcher
  bool tried_to_connect_ = false;  ///< This rank has tried to reach the store.
  std::optional<RunStore> store_;
  std::optional<RunStatus> run_status_;
  std::thread watcher_, callback_thread_;
  Descriptor wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};  ///< ends the watcher's wait

  std::mutex mutex_;  // guards all members below
  std::condition_variable changed_;
  std::optional<RankFailure> known_failure_;
  std::optional<RankFailure> own_failure_;  ///< Failure of this rank's main thread.
  std::function<void(const std::string&)> callback_;
  std::shared_ptr<FailureNotice> notice_;
  std::optional<std::chrono::steady_clock::time_point> failure_since_;
  bool is_in_callback_ = false;
  bool is_leaving_ = false, is_printed_ = false, is_over_ = false;
  bool is_store_lost_ = false;  ///< Every rank reports its failure itself.
  std::optional<bool> is_reporter_;
};

}  // namespace megatron
