// Layout of the shared memory of a group on one host: four slots per rank for collectives, and a
// ring per ordered pair for messages. It is the same for threads and processes, which differ only
// in the source of the memory (shared_memory.h).
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

inline constexpr std::int64_t kSlots = 4;              ///< Per rank; see shared_memory_transport.h.
inline constexpr std::int64_t kSlotBytes = 512 << 10;  ///< An L2 cache holds the data of a round.
inline constexpr std::int64_t kRingDepth = 4;

/// State of one rank: its number of announced rounds, the headers of its last two calls, and its
/// cache distance.
struct alignas(64) RankControl {
  std::atomic<std::uint64_t> announced;
  std::atomic<bool> is_far;  ///< The member that this rank probed last shares no cache with it.
  CallHeader headers[2];
  CacheLineProbe probe;
};

/// Message ring of one ordered pair of ranks, with the number of pieces written and read so far.
struct alignas(64) MessageRing {
  FutexEvent event;
  alignas(64) std::atomic<std::uint64_t> written;
  alignas(64) std::atomic<std::uint64_t> read;
  CallHeader headers[kRingDepth];
};

class SharedMemoryArea {
 public:
  static std::size_t bytes(std::int64_t ranks);
  /// Returns the bytes of the pieces of one message ring.
  static std::int64_t ring_bytes(std::int64_t ranks);
  /// `block` must initially be zero, and the same on all `ranks`.
  SharedMemoryArea(std::shared_ptr<SharedMemory> block, std::int64_t ranks);

  FutexEvent& event() const;  ///< Notified when a round is complete.
  RankControl& control(std::int64_t rank) const;
  std::byte* slot(std::int64_t rank, std::uint64_t round) const;
  MessageRing& ring(std::int64_t from, std::int64_t to) const;
  std::byte* piece(std::int64_t from, std::int64_t to, std::uint64_t index) const;
  std::int64_t piece_bytes() const { return layout_.piece_bytes; }

 private:
  struct Layout {
    explicit Layout(std::int64_t ranks);
    std::int64_t ranks, piece_bytes;
    std::size_t cells, slots, rings, pieces, end;  ///< Byte offset of each part.
  };
  std::shared_ptr<SharedMemory> block_;
  Layout layout_;
};

}  // namespace megatron
