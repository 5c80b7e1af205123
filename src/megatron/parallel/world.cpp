#include "megatron/parallel/world.h"

#include <c10/util/Logging.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "megatron/base/error.h"
#include "megatron/config/command_line.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/rendezvous/run_connection.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr const char* kKeysOfTheRun = "run";  ///< apart from those of the rendezvous

constexpr seconds kEarlyPatience{10};  ///< for reaching rank 0 with news of a failure before the ranks have met
constexpr seconds kPrintPatience{5};   ///< for rank 0 to print a failure of ours
constexpr seconds kLastGrace{5};       ///< for this rank's main thread to end after another's failure
constexpr seconds kOwnCauseWait{1};    ///< for rank 0 to find the same mistake itself

/// A failure that another one caused: what it says is not the reason.
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

class World::State {
 public:
  State(LaunchEnvironment environment, std::string command) : environment_(std::move(environment)), command_(std::move(command)) {}
  ~State() { stop_watching(/*is_woken=*/false); }

  void join(RendezvousOptions options);
  void leave();
  int end_in_failure(RankFailure failure, bool is_consequence, bool is_printed);
  void on_failure(std::function<void(const std::string&)> callback);

  const LaunchEnvironment& environment() const { return environment_; }
  const RunHosts& hosts() const { return hosts_; }
  const std::optional<RunStore>& store() const { return store_; }
  milliseconds timeout() const { return timeout_; }

 private:
  void connect(const ConnectionOptions& options);
  void disconnect();
  void connect_after_early_failure();

  void watch(FailureBoard board);
  void handle(const RankFailure& failure);
  void stop_watching(bool is_woken);

  std::optional<RankFailure> known_failure(milliseconds patience);
  void print_once(const RankFailure& failure);
  void see_printed(const RankFailure& first, const RankFailure& own);
  void let_others_leave();

  const LaunchEnvironment environment_;
  const std::string command_;
  RunHosts hosts_;
  milliseconds timeout_{600'000};

  bool has_tried_ = false;  ///< to reach the store
  std::optional<RunStore> store_;
  std::optional<FailureBoard> board_;
  std::thread watcher_;

  std::mutex mutex_;  // of all below
  std::condition_variable changed_;
  std::optional<RankFailure> known_;
  std::optional<RankFailure> own_;  ///< of the main thread
  std::function<void(const std::string&)> callback_;
  bool is_joined_ = false, is_leaving_ = false, is_printed_ = false, is_over_ = false;
};

/// c10d warns, with a stack trace, of every socket that a leaving peer closes, and of addresses without a name. What matters of it we say ourselves.
void quiet_c10d() {
  if (!std::getenv("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

void World::State::connect(const ConnectionOptions& options) {
  quiet_c10d();
  timeout_ = options.timeout;
  has_tried_ = true;
  store_ = open_store(environment_, options);
  board_.emplace(*store_, environment_.world_size);
  watcher_ = std::thread([this, board = FailureBoard(reopen_store(environment_, options.timeout), environment_.world_size)] { watch(board); });
}

void World::State::disconnect() {
  if (watcher_.joinable()) watcher_.join();  // it has lost its connection too
  board_.reset();
  store_.reset();
}

void World::State::join(RendezvousOptions options) {
  if (!options.progress) options.progress = [](const std::string& line) { std::cerr << line << std::endl; };
  if (environment_.world_size == 1) {
    hosts_ = {.names = {own_record({}).host}, .host_of_rank = {0}};
    return;
  }
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  while (true) {
    connect({options.timeout, options.progress});
    try {
      hosts_ = meet(environment_, *store_, *board_, options);
      const std::lock_guard lock(mutex_);
      is_joined_ = true;
      return;
    } catch (const StoreLost&) {
      // Rank 0 has ended before all had met; its launcher may be starting it again.
      if (hosts_store(environment_) || std::chrono::steady_clock::now() > deadline) throw;
      disconnect();
    }
  }
}

void World::State::watch(FailureBoard board) {
  std::optional<RankFailure> failure;
  try {
    board.wait_for_end(environment_.rank);
    failure = board.first();
  } catch (const StoreLost&) {
    const std::lock_guard lock(mutex_);
    if (!is_joined_ || is_leaving_) return;
    failure = RankFailure{0, "", 1, "error: the process that hosts the run's store at " + environment_.master_addr + " has gone"};
    is_printed_ = environment_.local_rank != 0;  // one line from each host
  }
  if (failure) handle(*failure);
}

/// In the watcher's thread: another rank, or this one, has failed.
void World::State::handle(const RankFailure& failure) {
  std::unique_lock lock(mutex_);
  known_ = failure;
  changed_.notify_all();
  const bool is_ours = failure.rank == environment_.rank && own_.has_value();
  if (is_ours) return;
  if (const auto callback = std::exchange(callback_, nullptr)) callback("rank " + std::to_string(failure.rank) + " failed: " + failure.text);
  if (environment_.rank == 0) {
    changed_.wait_for(lock, kOwnCauseWait, [&] { return own_.has_value(); });
    lock.unlock();
    print_once(failure);
    lock.lock();
  }
  if (changed_.wait_for(lock, kLastGrace, [&] { return is_over_; })) return;
  lock.unlock();
  print_once(failure);
  std::cout.flush();
  std::fflush(nullptr);
  ::_exit(failure.code);
}

/// Rank 0, and whoever cannot make rank 0 print.
void World::State::print_once(const RankFailure& failure) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_printed_, true) || failure.text.empty()) return;
  const bool is_own = failure.rank == environment_.rank || (own_ && own_->text == failure.text);
  const std::string who = "rank " + std::to_string(failure.rank) + (failure.host.empty() ? "" : " on " + failure.host) + ": ";
  report_failure(command_, is_own ? failure.text : who + failure.text);
}

void World::State::on_failure(std::function<void(const std::string&)> callback) {
  const std::lock_guard lock(mutex_);
  callback_ = std::move(callback);
  if (callback_ && known_) std::exchange(callback_, nullptr)("rank " + std::to_string(known_->rank) + " failed: " + known_->text);
}

void World::State::leave() {
  if (!board_) return;
  {
    const std::lock_guard lock(mutex_);
    is_leaving_ = true;
  }
  const bool is_last = environment_.rank == 0;  // which prints for the others, and mostly hosts the store
  if (is_last) {
    board_->leave();
    board_->wait_until_over();
  }
  if (const auto failure = board_->first()) throw PeerFailed(*failure);
  stop_watching(/*is_woken=*/false);
  if (!is_last) board_->leave();
}

/// Once a rank has left, the store may go at any moment: this comes before.
void World::State::stop_watching(bool is_woken) {
  {
    const std::lock_guard lock(mutex_);
    is_leaving_ = is_over_ = true;
    changed_.notify_all();
  }
  if (!watcher_.joinable()) return;
  try {
    if (!is_woken) board_->wake(environment_.rank);
  } catch (const StoreLost&) {
    // then the watcher has lost it too, and ends
  }
  watcher_.join();
}

/// The failure that another rank has told of, if it comes in time.
std::optional<RankFailure> World::State::known_failure(milliseconds patience) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, patience, [&] { return known_.has_value(); });
  return known_;
}

/// A rank that fails before it has joined: rank 0 hosts the store for a moment, so that the others hear of it; the others look for rank 0.
void World::State::connect_after_early_failure() {
  if (board_ || std::exchange(has_tried_, true) || environment_.world_size == 1) return;
  try {
    store_ = open_store(environment_, {.timeout = kEarlyPatience, .progress = [](const std::string&) {}});
    board_.emplace(*store_, environment_.world_size);
  } catch (const std::exception&) {
    board_.reset();  // nobody to tell: this rank prints its failure itself
    store_.reset();
  }
}

int World::State::end_in_failure(RankFailure failure, bool is_consequence, bool is_printed) {
  failure.rank = environment_.rank;
  failure.host = own_record({}).host;
  {
    const std::lock_guard lock(mutex_);
    own_ = failure;
    is_printed_ = is_printed_ || is_printed;
    changed_.notify_all();
  }
  connect_after_early_failure();
  std::optional<RankFailure> first = known_failure(is_consequence ? seconds(3) : seconds(0));
  try {
    if (!first && board_) first = board_->post(failure);
    see_printed(first.value_or(failure), failure);
    stop_watching(/*is_woken=*/true);
    let_others_leave();
  } catch (const StoreLost&) {
    print_once(first.value_or(failure));
    stop_watching(/*is_woken=*/true);
  }
  return first.value_or(failure).code;
}

/// Returns when the first failure has been printed by rank 0, or prints it.
void World::State::see_printed(const RankFailure& first, const RankFailure& own) {
  if (environment_.rank == 0 || !board_) {
    print_once(first);
    if (board_) board_->set_printed();
    return;
  }
  if (own.text.empty()) board_->set_printed();
  if (!board_->wait_until_printed(kPrintPatience) && first.rank == environment_.rank) print_once(first);
}

/// The host of the store waits until the others have read what stands there.
void World::State::let_others_leave() {
  if (!board_) return;
  board_->leave();
  if (hosts_store(environment_)) board_->wait_until_all_left(kPrintPatience);
}

World::World(LaunchEnvironment environment, std::string command) : state_(std::make_unique<State>(std::move(environment), std::move(command))) {}
World::~World() = default;
const LaunchEnvironment& World::environment() const { return state_->environment(); }
const RunHosts& World::hosts() const { return state_->hosts(); }
ProcessOptions World::process_options() const {
  return {.rank = environment().rank,
          .world_size = environment().world_size,
          .host = hosts().own_identity,
          .address = hosts().own_address,
          .timeout = state_->timeout()};
}

std::unique_ptr<Communicators> World::make_communicators(const ProcessOptions& options) const {
  return environment().world_size > 1 ? make_process_communicators(store(), options) : nullptr;
}

void World::join(const RendezvousOptions& options) { state_->join(options); }
void World::on_failure(std::function<void(const std::string&)> callback) { state_->on_failure(std::move(callback)); }
void World::leave() { state_->leave(); }

c10::intrusive_ptr<c10d::Store> World::store() const {
  if (!state_->store()) return {};
  return state_->store()->with_prefix(kKeysOfTheRun).store();
}

c10::intrusive_ptr<c10d::Store> World::new_store() const {
  if (!state_->store()) return {};
  return reopen_store(environment(), state_->timeout()).with_prefix(kKeysOfTheRun).store();
}

int World::end_in_failure(const std::exception_ptr& exception) {
  const CommandFailure failure = command_failure(exception);
  return state_->end_in_failure({.code = failure.code, .text = failure.text}, is_consequence(exception), false);
}

int World::end_in_failure(int code) { return state_->end_in_failure({.code = code, .text = {}}, false, true); }

int run_rank(const std::string& command, const std::function<int(World&)>& body, const LaunchEnvironment& environment) {
  World world(environment, command);
  if (environment.world_size == 1) return body(world);
  try {
    const int code = body(world);
    const bool is_polite = code == 0 || code > 128;
    if (!is_polite) return world.end_in_failure(code);
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
