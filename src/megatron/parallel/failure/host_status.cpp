#include "megatron/parallel/failure/host_status.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/base/machine.h"
#include "megatron/base/monotonic_clock.h"
#include "megatron/parallel/failure/shared_value.h"

namespace megatron {
namespace {

enum FailureState : std::uint32_t { kNone, kBeingWritten, kWritten };

constexpr std::chrono::seconds kStackTimeout{1};
/// Limit for a rank to write a few kilobytes.
constexpr std::int64_t kWriteTimeoutMs = 2'000;

std::int64_t monotonic_ms() { return static_cast<std::int64_t>(monotonic_seconds() * 1000); }

/// Sets `number` to `least` if it is smaller, and returns whether it was.
bool raise(std::atomic<std::int64_t>& number, std::int64_t least) {
  std::int64_t before = number.load();
  while (before < least) {
    if (number.compare_exchange_weak(before, least)) return true;
  }
  return false;
}

}  // namespace

ProcessWatch::ProcessWatch(std::int32_t process)
    : process_(process), handle_(static_cast<int>(::syscall(SYS_pidfd_open, process, 0))) {}

bool ProcessWatch::has_ended() const {
  if (!handle_.is_open()) return ::kill(process_, 0) != 0 && errno == ESRCH;
  pollfd state{.fd = handle_.number(), .events = POLLIN, .revents = 0};
  return ::poll(&state, 1, 0) > 0;
}

struct HostStatus::Memory {
  std::atomic<std::uint32_t> failure_state, has_reporter, is_explained, is_guess, has_dump_notice;
  // Times of the monotonic clock; 0: none.
  std::atomic<std::int64_t> last_warning_ms, failed_ms;
  std::atomic<std::int64_t> states_claimed, answered_request;  ///< numbers of requests
  char reason[4040];                                           ///< Zero-terminated.
};

/// State of one rank of the world. The entries follow Memory.
struct HostStatus::RankEntry {
  std::atomic<std::int32_t> process;
  std::atomic<std::uint32_t> left;
  std::atomic<std::uint32_t> stack_requests, stack_answers;  ///< how many there were
  SharedText<1024> stack;                                    ///< the last answer
  std::atomic<std::int64_t> section_since_ms;                ///< 0: outside of every section
  std::atomic<std::int64_t> progress_ms;                     ///< last progress in the section
  SharedText<128> section;
};

std::size_t HostStatus::bytes_before_waits(std::int64_t world_size) {
  return sizeof(Memory) + static_cast<std::size_t>(world_size) * sizeof(RankEntry);
}

std::size_t HostStatus::bytes_before_history(std::int64_t world_size) {
  return bytes_before_waits(world_size) + WaitTable::bytes(world_size);
}

std::size_t HostStatus::bytes(std::int64_t world_size) {
  return bytes_before_history(world_size) + CallHistory::bytes(world_size);
}

HostStatus::HostStatus(std::shared_ptr<SharedMemory> block, std::int64_t world_size)
    : block_(std::move(block)),
      world_size_(world_size),
      waits_(block_->data() + bytes_before_waits(world_size)),
      history_(block_->data() + bytes_before_history(world_size)) {
  MEGATRON_CHECK(block_->bytes() >= bytes(world_size), "the host status of ", world_size,
                 " ranks is too small");
}

HostStatus::Memory& HostStatus::memory() const {
  return *reinterpret_cast<Memory*>(block_->data());
}

void HostStatus::fail(const std::string& reason, bool is_explained) {
  std::uint32_t expected = kNone;
  if (!memory().failure_state.compare_exchange_strong(expected, kBeingWritten)) return;
  const std::size_t length = std::min(reason.size(), sizeof(Memory::reason) - 1);
  std::memcpy(memory().reason, reason.data(), length);
  memory().is_explained.store(is_explained ? 1 : 0);
  memory().failure_state.store(kWritten);
}

/// A rank that dies while it writes the reason leaves it half-written.
bool HostStatus::failed() const {
  const std::uint32_t state = memory().failure_state.load();
  if (state != kBeingWritten) return state == kWritten;
  // The first that sees it half-written begins to count.
  std::int64_t seen_ms = 0;
  const bool is_first = memory().failed_ms.compare_exchange_strong(seen_ms, monotonic_ms());
  return !is_first && monotonic_ms() - seen_ms > kWriteTimeoutMs;
}

std::string HostStatus::failure() const {
  if (!failed()) return {};
  return memory().failure_state.load() == kWritten
             ? memory().reason
             : "a rank failed and died before it could say why";
}

void HostStatus::mark_as_guess() { memory().is_guess.store(1); }

bool HostStatus::is_failure_explained() const {
  return failed() && memory().is_explained.load() != 0 && memory().is_guess.load() == 0;
}

bool HostStatus::claim_dump_notice() { return memory().has_dump_notice.exchange(1) == 0; }

bool HostStatus::claim_report() { return memory().has_reporter.exchange(1) == 0; }

void HostStatus::begin_section(std::int64_t rank, const std::string& what) {
  const std::lock_guard lock(mutex_);
  if (section_depths_[rank]++ > 0) return;
  entry(rank).section.write(what);
  entry(rank).progress_ms.store(monotonic_ms());
  entry(rank).section_since_ms.store(monotonic_ms());
}

void HostStatus::end_section(std::int64_t rank) {
  const std::lock_guard lock(mutex_);
  if (--section_depths_[rank] == 0) entry(rank).section_since_ms.store(0);
}

void HostStatus::record_progress(std::int64_t rank) {
  entry(rank).progress_ms.store(monotonic_ms());
}

std::optional<RankSection> HostStatus::section_of(std::int64_t rank) const {
  const RankEntry& from = entry(rank);
  const std::int64_t since_ms = from.section_since_ms.load(), now_ms = monotonic_ms();
  if (since_ms == 0) return std::nullopt;
  return RankSection{.what = from.section.read(),
                     .age = std::chrono::milliseconds(now_ms - since_ms),
                     .since_progress = std::chrono::milliseconds(now_ms - from.progress_ms.load())};
}

bool HostStatus::claim_warning(std::chrono::milliseconds pause) {
  const std::int64_t now_ms = monotonic_ms();
  std::int64_t last_ms = memory().last_warning_ms.load();
  if (last_ms != 0 && now_ms - last_ms < pause.count()) return false;
  return memory().last_warning_ms.compare_exchange_strong(last_ms, now_ms);
}

std::string HostStatus::request_stack(std::int64_t rank) {
  RankEntry& asked = entry(rank);
  if (asked.process.load() == 0) return {};
  const std::uint32_t request = asked.stack_requests.fetch_add(1) + 1;
  const auto limit = std::chrono::steady_clock::now() + kStackTimeout;
  while (asked.stack_answers.load() < request) {
    if (std::chrono::steady_clock::now() > limit) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return asked.stack.read();
}

bool HostStatus::take_stack_request(std::int64_t rank) {
  return entry(rank).stack_answers.load() < entry(rank).stack_requests.load();
}

void HostStatus::answer_stack_request(std::int64_t rank, const std::string& stack) {
  const std::uint32_t requests = entry(rank).stack_requests.load();
  entry(rank).stack.write(stack);
  entry(rank).stack_answers.store(requests);
}

HostStatus::RankEntry& HostStatus::entry(std::int64_t rank) const {
  return reinterpret_cast<RankEntry*>(block_->data() + sizeof(Memory))[rank];
}

/// Rank threads register no process. They are included once they have published an iteration or a
/// wait.
RankStates HostStatus::states() {
  RankStates states;
  for (std::int64_t rank = 0; rank < world_size_; ++rank) {
    const std::int32_t process = entry(rank).process.load();
    RankWait wait = waits_.read(rank);
    if (process == 0 && !wait.is_waiting && wait.iteration < 0) continue;
    const auto kind = is_process_stopped(process) ? RankState::Kind::stopped
                      : wait.is_waiting           ? RankState::Kind::waiting
                                                  : RankState::Kind::running;
    states[rank] = {kind, std::move(wait), process};
    if (kind == RankState::Kind::running) states[rank].section = section_of(rank);
  }
  return states;
}

bool HostStatus::claim_states_request(std::int64_t request) {
  return raise(memory().states_claimed, request);
}

void HostStatus::set_answered_request(std::int64_t request) {
  raise(memory().states_claimed, request);
  raise(memory().answered_request, request);
}

std::int64_t HostStatus::answered_request() const { return memory().answered_request.load(); }

void HostStatus::set_state_query(StateQuery state_query) {
  const std::lock_guard lock(mutex_);
  state_query_ = std::move(state_query);
}

HostStatus::StateQuery HostStatus::state_query() {
  const std::lock_guard lock(mutex_);
  return state_query_;
}

void HostStatus::enter(std::int64_t rank) { entry(rank).process.store(::getpid()); }

void HostStatus::leave(std::int64_t rank) { entry(rank).left.store(1); }

bool HostStatus::has_left(std::int64_t rank) const { return entry(rank).left.load() != 0; }

bool HostStatus::is_dead(std::int64_t rank) {
  return !has_left(rank) && has_process_ended(rank) && !has_left(rank);
}

bool HostStatus::has_process_ended(std::int64_t rank) {
  const std::int32_t process = entry(rank).process.load();
  if (process == 0) return false;
  const std::lock_guard lock(mutex_);
  return watches_.try_emplace(rank, process).first->second.has_ended();
}

}  // namespace megatron
