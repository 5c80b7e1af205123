#include "megatron/parallel/shared_memory/shared_memory_area.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kLargestPiece = 128 << 10;
/// Address space reserved for all rings. Pages are allocated when a pair first uses them.
constexpr std::int64_t kRingsTogether = 1 << 30;

std::size_t page_up(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

SharedMemoryArea::Layout::Layout(std::int64_t ranks) : ranks(ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  piece_bytes = std::clamp(kRingsTogether / (ranks * ranks * kRingDepth) / kPage * kPage, kPage,
                           kLargestPiece);
  cells = page_up(sizeof(FutexEvent));
  slots = page_up(cells + n * sizeof(RankControl));
  rings = slots + n * kSlots * kSlotBytes;
  pieces = page_up(rings + n * n * sizeof(MessageRing));
  end = pieces + n * n * static_cast<std::size_t>(kRingDepth * piece_bytes);
}

std::size_t SharedMemoryArea::bytes(std::int64_t ranks) { return Layout(ranks).end; }

std::int64_t SharedMemoryArea::ring_bytes(std::int64_t ranks) {
  return kRingDepth * Layout(ranks).piece_bytes;
}

SharedMemoryArea::SharedMemoryArea(std::shared_ptr<SharedMemory> block, std::int64_t ranks)
    : block_(std::move(block)), layout_(ranks) {
  MEGATRON_CHECK(block_->bytes() >= layout_.end, "the shared memory of ", ranks,
                 " ranks is too small");
}

FutexEvent& SharedMemoryArea::event() const {
  return *reinterpret_cast<FutexEvent*>(block_->data());
}

RankControl& SharedMemoryArea::control(std::int64_t rank) const {
  return reinterpret_cast<RankControl*>(block_->data() + layout_.cells)[rank];
}

std::byte* SharedMemoryArea::slot(std::int64_t rank, std::uint64_t round) const {
  return block_->data() + layout_.slots +
         (static_cast<std::size_t>(rank) * kSlots + round % kSlots) * kSlotBytes;
}

MessageRing& SharedMemoryArea::ring(std::int64_t from, std::int64_t to) const {
  return reinterpret_cast<MessageRing*>(block_->data() + layout_.rings)[from * layout_.ranks + to];
}

std::byte* SharedMemoryArea::piece(std::int64_t from, std::int64_t to, std::uint64_t index) const {
  const std::int64_t place =
      (from * layout_.ranks + to) * kRingDepth + static_cast<std::int64_t>(index % kRingDepth);
  return block_->data() + layout_.pieces + static_cast<std::size_t>(place * layout_.piece_bytes);
}

}  // namespace megatron
