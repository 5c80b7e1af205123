#include "megatron/parallel/failure/hang_watch.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <exception>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/machine.h"
#include "megatron/base/wall_clock.h"
#include "megatron/parallel/shared_memory/spin_wait.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kInterval{200};
/// No two ranks of a host warn within this time.
constexpr milliseconds kWarningPause{8'000};

/// Global because signals are per process.
std::atomic<std::uint64_t> num_signals_received{0};

void handle_signal(int /*signal*/) { ++num_signals_received; }

void install_handler() {
  struct sigaction action {};
  action.sa_handler = handle_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  MEGATRON_CHECK(::sigaction(SIGUSR2, &action, nullptr) == 0,
                 "cannot install the handler of SIGUSR2");
}

/// Warnings come after 10 s, one minute, five minutes and then every five minutes.
milliseconds after(milliseconds warning, milliseconds first) {
  if (warning < milliseconds(60'000)) return std::max(first * 2, milliseconds(60'000));
  return warning < milliseconds(300'000) ? milliseconds(300'000) : warning + milliseconds(300'000);
}

/// Returns what changes while this process makes progress: the CPU time of its main thread, and the
/// bytes of its files. Bytes read do not count, because this function reads itself.
std::string progress_text() {
  std::ifstream stat("/proc/self/task/" + std::to_string(::getpid()) + "/stat");
  std::string line, text;
  std::getline(stat, line);
  std::istringstream fields(line.substr(std::min(line.size(), line.rfind(')') + 1)));
  for (int i = 3; fields >> line; ++i)
    if (i == 14 || i == 15) text += line + " ";  // user and system time
  std::ifstream io("/proc/self/io");
  while (std::getline(io, line))
    if (line.starts_with("wchar") || line.starts_with("read_bytes")) text += line + " ";
  return text;
}

std::string missing_text(const TimedOutRank& waiter, const RankStates& states,
                         const std::vector<std::int64_t>& group) {
  if (!waiter.missing.empty()) return hang_text(waiter, states);
  const bool is_one_host =
      std::ranges::all_of(group, [&](std::int64_t rank) { return states.contains(rank); });
  return is_one_host ? "all ranks have made the call, but it is not complete after " +
                           time_text(waiter.timeout)
                     : "ranks of another host have not arrived after " + time_text(waiter.timeout);
}

std::string state_name(RankState::Kind kind) {
  if (kind == RankState::Kind::stopped) return "stopped";
  return kind == RankState::Kind::waiting ? "waiting" : "running";
}

}  // namespace

std::vector<std::int64_t> late_ranks(HostStatus& host_status, std::int64_t rank,
                                     const CallRecord& call, const CallGroup& group) {
  const RankStates states = host_status.states();
  std::vector<std::int64_t> late;
  for (const std::int64_t other : awaited_ranks(call, rank, group.ranks)) {
    if (!states.contains(other)) continue;
    const std::vector<CallRecord> calls = host_status.history().read(other);
    const bool has_made_it = std::ranges::any_of(
        calls, [&](const CallRecord& made) { return is_part_of(made, call, rank); });
    if (!has_made_it) late.push_back(other);
  }
  return late;
}

HangWatch::HangWatch(std::shared_ptr<HostStatus> host_status, HangWatchOptions options)
    : host_status_(std::move(host_status)),
      options_(std::move(options)),
      next_warning_(options_.warn_after),
      num_signals_(num_signals_received.load()) {
  install_handler();
  thread_ = std::thread([this] { watch(); });
}

HangWatch::~HangWatch() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (judge_.joinable()) judge_.join();
  try {
    dump_after_failure();
  } catch (const std::exception&) {
    // Expected when the folder cannot be written; the failure itself has its own message.
  }
}

/// An error here must not end the rank.
void HangWatch::watch() noexcept {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kInterval, [this] { return is_ending_; })) {
    lock.unlock();
    try {
      poll();
    } catch (const std::exception& error) {
      if (std::exchange(last_error_, error.what()) != error.what())
        std::cerr << "warning: rank " << options_.rank << " cannot report hangs: " << error.what()
                  << std::endl;
    }
    lock.lock();
  }
}

void HangWatch::poll() {
  if (host_status_->take_stack_request(options_.rank))
    host_status_->answer_stack_request(options_.rank, short_stack(main_thread_stack()));
  sample_progress();
  dump_after_signal();
  dump_after_failure();
  if (host_status_->failed()) return;
  check_deadline();
  if (options_.poll_device_calls) return check_device_calls();
  if (options_.warn_after.count() > 0) warn_about_waits();
}

void HangWatch::sample_progress() {
  if (!host_status_->section_of(options_.rank)) return;
  std::string progress = progress_text();
  if (progress == last_progress_) return;
  last_progress_ = std::move(progress);
  host_status_->record_progress(options_.rank);
}

void HangWatch::set_deadline(const Deadline& deadline) {
  const std::lock_guard lock(mutex_);
  deadline_ = deadline;
  ++deadline_number_;
  next_deadline_check_ = deadline.limit;
  deadline_timer_ = {};
}

void HangWatch::check_deadline() {
  host_status_->waits().overdue(options_.rank, milliseconds(0));  // keeps the timers running
  const std::lock_guard lock(mutex_);
  const bool is_over =
      deadline_.limit.count() > 0 && deadline_timer_.elapsed() >= next_deadline_check_;
  if (!is_over || is_judging_) return;
  next_deadline_check_ += decision_interval(deadline_.limit);
  if (judge_.joinable()) judge_.join();  // it has ended
  is_judging_ = true;
  judge_ = std::thread(
      [this, deadline = deadline_, number = deadline_number_] { judge(deadline, number); });
}

void HangWatch::judge(const Deadline& deadline, std::uint64_t number) {
  std::string cause;
  try {
    cause = cause_of_delay(deadline.limit);
  } catch (const std::exception& error) {
    cause = std::string("what delays it is unknown: ") +
            error.what();  // the deadline has passed in any case
  }
  const std::lock_guard lock(mutex_);
  is_judging_ = false;
  if (cause.empty() || number != deadline_number_) return;
  host_status_->fail(deadline.what + " of rank " + std::to_string(options_.rank) +
                     " is not over after " + time_text(deadline.limit) + " (" + deadline.source +
                     "): " + cause);
}

std::string HangWatch::cause_of_delay(milliseconds limit) {
  if (options_.poll_device_calls) return cause_on_device(limit);
  // A shorter wait does not explain the delay.
  const milliseconds least = std::max(limit / 8, milliseconds(1));
  for (milliseconds waited = limit; waited >= least; waited /= 2) {
    if (!host_status_->waits().read(options_.rank).is_waiting) break;
    const std::vector<std::int64_t> missing = host_status_->waits().overdue(options_.rank, waited);
    if (!missing.empty()) return report_hang(*host_status_, {options_.rank, missing, waited});
  }
  return own_place();
}

/// The host does not wait for calls on a device.
std::string HangWatch::cause_on_device(milliseconds limit) {
  const auto late = late_device_call(limit / 8);  // a younger one does not explain the delay
  if (!late) return own_place();
  const TimedOutRank waiter{options_.rank, late->missing, late->age};
  if (!late->missing.empty()) return report_hang(*host_status_, waiter);
  return late->call + ": " + missing_text(waiter, host_status_->states(), late->group);
}

std::string HangWatch::own_place() const {
  const std::string stack = short_stack(main_thread_stack());
  return "this rank waits for no other" + (stack.empty() ? "" : ", it is in " + stack);
}

void HangWatch::warn_about_waits() {
  WaitTable& waits = host_status_->waits();
  const RankWait wait = waits.read(options_.rank);
  if (!wait.is_waiting || waits.overdue(options_.rank, options_.warn_after).empty()) {
    next_warning_ = options_.warn_after;
    return;
  }
  const std::vector<std::int64_t> missing = waits.overdue(options_.rank, next_warning_);
  if (!missing.empty()) warn({.call = wait.call, .missing = missing});
}

/// Returns the oldest call that the device of this rank waits for, if it is at least `least` old.
std::optional<HangWatch::LateCall> HangWatch::late_device_call(milliseconds least) {
  const std::optional<DeviceCall> oldest = options_.poll_device_calls();
  if (!oldest || oldest->age < least) return std::nullopt;
  const std::vector<CallRecord> calls = host_status_->history().read(options_.rank);
  const auto call = std::ranges::find(calls, oldest->number, &CallRecord::number);
  if (call == calls.end()) return std::nullopt;
  const CallGroups groups = host_status_->history().groups();
  const auto group = groups.find(call->group);
  if (group == groups.end()) return std::nullopt;
  return LateCall{.call = describe_with_place(*call),
                  .missing = late_ranks(*host_status_, options_.rank, *call, group->second),
                  .group = group->second.ranks,
                  .age = oldest->age};
}

void HangWatch::check_device_calls() {
  const bool warns = options_.warn_after.count() > 0;
  const milliseconds first = warns ? options_.warn_after : options_.timeout;
  const std::optional<LateCall> late = late_device_call(std::min(first, options_.timeout));
  if (!late) {
    next_warning_ = options_.warn_after;
    return;
  }
  if (late->age >= options_.timeout) return end_device_call(*late);
  if (warns && late->age >= next_warning_) warn(*late);
}

void HangWatch::end_device_call(const LateCall& late) {
  RankStates states = host_status_->states();
  const TimedOutRank waiter{options_.rank, late.missing, options_.timeout};
  if (is_worth_waiting(waiter, states)) return;
  add_stacks(*host_status_, reachable_ranks(late.missing, states), states);
  host_status_->fail(late.call + ": " + missing_text(waiter, states, late.group));
}

void HangWatch::warn(const LateCall& late) {
  const milliseconds waited = next_warning_;
  next_warning_ = after(next_warning_, options_.warn_after);
  if (!host_status_->claim_warning(std::min(kWarningPause, options_.warn_after))) return;
  RankStates states = host_status_->states();
  add_stacks(*host_status_, reachable_ranks(late.missing, states), states);
  const std::string line = "warning: " + late.call + ": " +
                           missing_text({options_.rank, late.missing, waited}, states, late.group) +
                           "; the run waits up to " + time_text(options_.timeout) +
                           " (--distributed-timeout-minutes)";
  if (options_.print) return options_.print(line);
  std::cerr << line << std::endl;
}

void HangWatch::dump_after_signal() {
  const std::uint64_t received = num_signals_received.load();
  if (received == num_signals_) return;
  num_signals_ = received;
  if (!options_.folder.empty()) {
    write_dumps("SIGUSR2");
    std::cerr << "rank " << options_.rank << " wrote its calls and stacks to "
              << dump_path(options_.folder, options_.rank).string() << std::endl;
    return;
  }
  const RankDump dump = dump_of(options_.rank, "SIGUSR2");
  std::cerr << "rank " << options_.rank << " is " << dump.state
            << (dump.wait.is_waiting ? " in " + dump.wait.call : "");
  if (!dump.threads.empty()) std::cerr << ", in " << short_stack(dump.threads.front(), 8);
  std::cerr << std::endl;
}

void HangWatch::dump_after_failure() {
  if (has_dumped_failure_ || !host_status_->failed()) return;
  has_dumped_failure_ = true;
  // A rank that failed with a message of its own needs no search for the cause.
  if (options_.folder.empty() || host_status_->is_failure_explained()) return;
  write_dumps(host_status_->failure());
  if (!host_status_->claim_dump_notice()) return;
  std::cerr << "the calls and stacks of every rank are in " << options_.folder.string()
            << ": megatron hang-report " << options_.folder.string() << std::endl;
}

/// Writes the dump of this rank, and of the ranks of this host that cannot write their own.
void HangWatch::write_dumps(const std::string& reason) {
  write_dump(dump_path(options_.folder, options_.rank), dump_of(options_.rank, reason));
  for (const auto& [rank, state] : host_status_->states()) {
    const bool is_unable = state.kind == RankState::Kind::stopped || host_status_->is_dead(rank);
    if (rank != options_.rank && is_unable)
      write_dump(dump_path(options_.folder, rank), dump_of(rank, reason));
  }
}

RankDump HangWatch::dump_of(std::int64_t rank, const std::string& reason) const {
  try {
    if (rank == options_.rank && options_.poll_device_calls) options_.poll_device_calls();
  } catch (const std::exception&) {
    // Expected when the device has failed; the calls are as they were known before.
  }
  RankDump dump{.rank = rank,
                .world_size = options_.world_size,
                .host = host_name(),
                .process = 0,
                .start = options_.start,
                .time_s = unix_seconds(),
                .state = "running",
                .is_on_device = static_cast<bool>(options_.poll_device_calls),
                .reason = reason,
                .wait = {},
                .calls = host_status_->history().read(rank),
                .groups = host_status_->history().groups(),
                .threads = {}};
  const RankStates states = host_status_->states();
  if (const auto state = states.find(rank); state != states.end()) {
    dump.process = state->second.process;
    dump.state = state_name(state->second.kind);
    dump.wait = state->second.wait;
  }
  if (!dump.wait.is_waiting) dump.wait.call.clear(), dump.wait.missing.clear();
  if (host_status_->has_left(rank)) dump.state = "ended";
  if (host_status_->is_dead(rank)) dump.state = "dead";
  if (rank == options_.rank) dump.threads = thread_stacks();
  return dump;
}

}  // namespace megatron
