#include "megatron/parallel/failure/host_status.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>

#include "megatron/base/error.h"

namespace megatron {
namespace {

enum FailureState : std::uint32_t { kNone, kBeingWritten, kWritten };

/// Returns whether a signal or a debugger has suspended the process.
bool is_stopped(std::int32_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_end = text.rfind(')');  // the name may itself contain parentheses
  if (process == 0 || name_end == std::string::npos || name_end + 2 >= text.size()) return false;
  return text[name_end + 2] == 'T' || text[name_end + 2] == 't';
}

}  // namespace

struct HostStatus::Memory {
  std::atomic<std::uint32_t> failure_state, has_reporter;
  char reason[4088];  ///< Zero-terminated.
};

/// State of one rank of the world. The entries follow Memory.
struct HostStatus::RankEntry {
  std::atomic<std::int32_t> process;
  std::atomic<std::uint32_t> left;
};

std::size_t HostStatus::bytes_before_waits(std::int64_t world_size) {
  return sizeof(Memory) + static_cast<std::size_t>(world_size) * sizeof(RankEntry);
}

std::size_t HostStatus::bytes(std::int64_t world_size) {
  return bytes_before_waits(world_size) + WaitTable::bytes(world_size);
}

HostStatus::HostStatus(std::shared_ptr<SharedMemory> block, std::int64_t world_size)
    : block_(std::move(block)),
      world_size_(world_size),
      waits_(block_->data() + bytes_before_waits(world_size)) {
  MEGATRON_CHECK(block_->bytes() >= bytes(world_size), "the host status of ", world_size,
                 " ranks is too small");
}

HostStatus::Memory& HostStatus::memory() const {
  return *reinterpret_cast<Memory*>(block_->data());
}

void HostStatus::fail(const std::string& reason) {
  std::uint32_t expected = kNone;
  if (!memory().failure_state.compare_exchange_strong(expected, kBeingWritten)) return;
  const std::size_t length = std::min(reason.size(), sizeof(Memory::reason) - 1);
  std::memcpy(memory().reason, reason.data(), length);
  memory().failure_state.store(kWritten);
}

bool HostStatus::failed() const { return memory().failure_state.load() == kWritten; }

std::string HostStatus::failure() const { return failed() ? memory().reason : std::string(); }

bool HostStatus::claim_report() { return memory().has_reporter.exchange(1) == 0; }

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
    const auto kind = is_stopped(process) ? RankState::Kind::stopped
                      : wait.is_waiting   ? RankState::Kind::waiting
                                          : RankState::Kind::running;
    states[rank] = {kind, std::move(wait), process};
  }
  return states;
}

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
  const std::int32_t process = entry(rank).process.load();
  if (process == 0 || has_left(rank)) return false;
  const std::lock_guard lock(mutex_);
  return watches_.try_emplace(rank, process).first->second.has_ended() && !has_left(rank);
}

}  // namespace megatron
