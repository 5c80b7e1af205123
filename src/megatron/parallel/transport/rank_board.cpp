#include "megatron/parallel/transport/rank_board.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "megatron/base/error.h"

namespace megatron {
namespace {

enum FailureState : std::uint32_t { kNone, kBeingWritten, kWritten };

}  // namespace

struct RankBoard::Memory {
  std::atomic<std::uint32_t> failure_state;
  char reason[2044];  ///< ends with a zero byte
};

/// One per rank of the world, behind Memory.
struct RankBoard::RankEntry {
  std::atomic<std::int32_t> process;
  std::atomic<std::uint32_t> left;
};

std::size_t RankBoard::bytes(std::int64_t world_size) { return sizeof(Memory) + static_cast<std::size_t>(world_size) * sizeof(RankEntry); }

RankBoard::RankBoard(std::shared_ptr<SharedBlock> block, std::int64_t world_size) : block_(std::move(block)) {
  MEGATRON_CHECK(block_->bytes() >= bytes(world_size), "the board of ", world_size, " ranks is too small");
}

RankBoard::Memory& RankBoard::memory() const { return *reinterpret_cast<Memory*>(block_->data()); }

void RankBoard::fail(const std::string& reason) {
  std::uint32_t expected = kNone;
  if (!memory().failure_state.compare_exchange_strong(expected, kBeingWritten)) return;
  const std::size_t length = std::min(reason.size(), sizeof(Memory::reason) - 1);
  std::memcpy(memory().reason, reason.data(), length);
  memory().failure_state.store(kWritten);
}

bool RankBoard::failed() const { return memory().failure_state.load() == kWritten; }

std::string RankBoard::failure() const { return failed() ? memory().reason : std::string(); }

RankBoard::RankEntry& RankBoard::entry(std::int64_t rank) const { return reinterpret_cast<RankEntry*>(block_->data() + sizeof(Memory))[rank]; }

void RankBoard::enter(std::int64_t rank) { entry(rank).process.store(::getpid()); }

void RankBoard::leave(std::int64_t rank) { entry(rank).left.store(1); }

bool RankBoard::has_left(std::int64_t rank) const { return entry(rank).left.load() != 0; }

bool RankBoard::is_dead(std::int64_t rank) {
  const std::int32_t process = entry(rank).process.load();
  if (process == 0 || has_left(rank)) return false;
  const std::lock_guard lock(mutex_);
  return watches_.try_emplace(rank, process).first->second.has_ended() && !has_left(rank);
}

}  // namespace megatron
