// Memory in which the ranks of a group on one host meet: four slots per rank for collectives, a
// ring per ordered pair for messages. The same for threads and processes; only where the memory
// comes from differs (shared_memory.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "megatron/parallel/shared_memory/cache_line_probe.h"
#include "megatron/parallel/shared_memory/futex_event.h"
#include "megatron/parallel/shared_memory/shared_memory.h"
#include "megatron/parallel/transport/call_header.h"

namespace megatron {

inline constexpr std::int64_t kSlots = 4;  ///< of a rank; shared_memory_transport.h says why
inline constexpr std::int64_t kSlotBytes =
    512 << 10;  ///< a cache of the second level holds what a round touches
inline constexpr std::int64_t kRingDepth = 4;

/// Of one rank: how many rounds it has announced, its last two calls, and how far it is from
/// others.
struct alignas(64) RankControl {
  std::atomic<std::uint64_t> announced;
  std::atomic<bool> is_far;  ///< from the member that it measured last
  CallHeader headers[2];
  CacheLineProbe probe;
};

/// Of one ordered pair of ranks: pieces written and read so far.
struct alignas(64) MessageRing {
  FutexEvent event;
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  CallHeader headers[kRingDepth];
};

class SharedMemoryArea {
 public:
  static std::size_t bytes(std::int64_t ranks);
  /// `block` of zeros at first, the same for all `ranks`.
  SharedMemoryArea(std::shared_ptr<SharedMemory> block, std::int64_t ranks);

  FutexEvent& event() const;  ///< notified when a round is complete
  RankControl& control(std::int64_t rank) const;
  std::byte* slot(std::int64_t rank, std::uint64_t round) const;
  MessageRing& ring(std::int64_t from, std::int64_t to) const;
  std::byte* piece(std::int64_t from, std::int64_t to, std::uint64_t index) const;
  std::int64_t piece_bytes() const { return layout_.piece_bytes; }

 private:
  struct Layout {
    explicit Layout(std::int64_t ranks);
    std::int64_t ranks, piece_bytes;
    std::size_t cells, slots, rings, pieces, end;  ///< where each part begins
  };
  std::shared_ptr<SharedMemory> block_;
  Layout layout_;
};

}  // namespace megatron
