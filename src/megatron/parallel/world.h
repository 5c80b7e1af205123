// The life of one rank's process in a run: it joins the others over a store and ends together with
// them. Rank 0 prints the first failure once, and all ranks end within seconds.
//
//   int run_pretrain(args) {
//     return run_rank("pretrain", [&](World& world) {
//       const RunConfig run = read_run(args);  // a UserError here ends every rank with exit code 2
//       world.join({.timeout = …, .settings = …});
//       const auto communicators = world.make_communicators(world.process_options());
//       world.on_failure([&](const std::string& reason) { communicators->abort(reason); });
//       …
//       world.on_failure(nullptr);
//       return code;
//     });
//   }
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "megatron/base/descriptor.h"
#include "megatron/config/launch_environment.h"
#include "megatron/config/run_command.h"
#include "megatron/control/run_status.h"
#include "megatron/control/run_store.h"
#include "megatron/parallel/failure/failure_notice.h"
#include "megatron/parallel/process_communicators.h"
#include "megatron/parallel/rendezvous/rendezvous.h"

namespace megatron {

class World {
 public:
  /// `command` names the command in messages. The constructor does no communication.
  World(LaunchEnvironment environment, std::string command);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World() { stop_watching(); }

  const LaunchEnvironment& environment() const { return environment_; }

  /// Connects to the other ranks; returns at once in a world of one process. Collective over all
  /// ranks. Throws UserError when the store cannot be opened or reached, or when ranks are missing
  /// or were started with other settings; PeerFailed when another rank has failed.
  void join(RendezvousOptions options);
  const RunHosts& hosts() const { return hosts_; }
  /// Returns the options of this rank for make_communicators(). The caller adds device and
  /// transport.
  ProcessOptions process_options() const;

  /// Makes the communicators of this rank; null in a world of one process. Collective over all
  /// ranks. Throws as make_process_communicators() does.
  std::unique_ptr<Communicators> make_communicators(const ProcessOptions& options) const;

  /// Returns the run's store, or nothing in a world of one process. Any thread may use it. Its keys
  /// belong to this start of the run only.
  std::optional<RunStore> store() const;

  /// Sets the callback that ends this rank's waits when another rank has failed. It is called once,
  /// from another thread, or at once when the failure has already happened. nullptr removes it and
  /// returns after a call under way. A rank that has not ended some seconds after the call is
  /// killed.
  void on_failure(std::function<void(const std::string& reason)> callback);

  /// Makes this rank end when `notice` holds a failure. If it has not ended some seconds later, it
  /// is ended by force with a message.
  void set_failure_notice(std::shared_ptr<FailureNotice> notice);

  /// Ends the run normally. Rank 0, which hosts the store, returns after all others have called
  /// this too. Throws PeerFailed when another rank has failed, UserError when ranks do not call
  /// within the timeout.
  void leave();

  /// Ends this rank after its own failure and returns its exit code. It reports the failure to the
  /// other ranks unless one of them failed first, and makes sure that the cause has been printed.
  int end_in_failure(const std::exception_ptr& exception);
  /// Ends this rank after a failure whose cause has already been printed.
  int end_in_failure(int code);

 private:
  /// Limit for this rank's main thread to end after another rank's failure.
  static constexpr std::chrono::seconds kExitGracePeriod{5};
  /// Limit for the store to answer after a failure.
  static constexpr std::chrono::seconds kStoreTimeout{5};

  int end_in_failure(RankFailure failure, bool is_consequence, bool is_printed);
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
  Descriptor wake_;  ///< an eventfd, ends the watcher's wait

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

/// Runs the body of a command as one rank of the run and returns its exit code. An exception ends
/// every rank: with exit code 2 for a UserError, else 1. Rank 0 prints it as `megatron <command>:
/// error: …`. A returned exit code other than 0 also ends every rank, except codes above 128, which
/// mean a requested stop. In a world of one process exceptions pass through.
int run_rank(const std::string& command, const std::function<int(World&)>& body,
             const LaunchEnvironment& environment = find_launch_environment());

}  // namespace megatron
