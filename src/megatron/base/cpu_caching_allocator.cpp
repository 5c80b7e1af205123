#include "megatron/base/cpu_caching_allocator.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::size_t kCacheLine = 64, kPage = 4096;
/// The constructor gives up when the system does not grant this many bytes of address space.
constexpr std::size_t kMinAddressSpace = std::size_t{1} << 20;
/// Sizes below this many cache lines have one free list each. Above, every power of two has this
/// many free lists.
constexpr int kLinearSizeClasses = 32;

std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

/// Returns the number of bytes from `data` to the next address that is a multiple of `multiple`.
std::size_t gap(const std::byte* data, std::size_t multiple) {
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  return round_up(at, multiple) - at;
}

/// Reserves address space that starts at a multiple of `alignment`. Returns nullptr if the system
/// grants none.
std::byte* reserve(std::size_t bytes, std::size_t alignment) {
  void* data = ::mmap(nullptr, bytes + alignment, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(data);
  const std::size_t head = gap(begin, alignment), tail = alignment - head;
  if (head > 0) ::munmap(begin, head);
  if (tail > 0) ::munmap(begin + head + bytes, tail);
  return begin + head;
}

/// Regions for heaps that grow without a reservation. They are far from the malloc heap and from
/// the addresses that mmap chooses (from the top down).
constexpr std::uintptr_t kFirstFixedBase = 0x1100'0000'0000;
constexpr std::size_t kFixedRegionBytes = std::size_t{1} << 42;
constexpr std::size_t kMaxFixedRegions = 16;

/// Maps exactly [data, data + bytes) if nothing is there yet.
bool map_at(std::byte* data, std::size_t bytes, int protection) {
  void* const mapped =
      ::mmap(data, bytes, protection,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped == data) return true;
  // Kernels before 4.17 ignore MAP_FIXED_NOREPLACE and may map another address.
  if (mapped != MAP_FAILED) ::munmap(mapped, bytes);
  return false;
}

}  // namespace

/// The header in front of every block's bytes. Blocks fill the range from base_ to top_ without
/// gaps, and no two free blocks are adjacent.
struct alignas(kCacheLine) CpuCachingAllocator::Block {
  std::size_t size = 0;     ///< bytes including this header; a multiple of a cache line
  Block* before = nullptr;  ///< the preceding block in memory; nullptr for the first
  Block *next = nullptr, *previous = nullptr;  ///< links of the free list
  std::size_t returned = 0;                    ///< bytes that empty_cache() released to the system
  bool is_free = true;

  std::byte* data() { return reinterpret_cast<std::byte*>(this + 1); }
  std::size_t capacity() const { return size - sizeof(Block); }
};

CpuCachingAllocator::CpuCachingAllocator(const Options& options) : options_(options) {
  if (options.reserve_upfront || !map_fixed_base()) reserve_all();
  MEGATRON_CHECK(base_ != nullptr, "no address space for a heap of ", options.address_space,
                 " bytes");
  top_ = base_;
}

void CpuCachingAllocator::reserve_all() {
  for (std::size_t bytes = round_up(options_.address_space, options_.growth_bytes);
       base_ == nullptr && bytes >= kMinAddressSpace; bytes /= 2) {
    address_space_ = round_up(bytes, options_.growth_bytes);
    base_ = reserve(address_space_, options_.growth_bytes);
  }
}

/// Takes the first unused fixed region and maps its first page to mark it as used.
bool CpuCachingAllocator::map_fixed_base() {
  const std::size_t head = std::max(options_.growth_bytes, kPage);
  for (std::size_t i = 0; i < kMaxFixedRegions; ++i) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the regions lie at fixed addresses.
    auto* const place = reinterpret_cast<std::byte*>(kFirstFixedBase + i * kFixedRegionBytes);
    if (!map_at(place, kPage, PROT_NONE)) continue;
    fixed_base_ = place;
    base_ = place + head;
    address_space_ =
        std::min(round_up(options_.address_space, options_.growth_bytes), kFixedRegionBytes - head);
    return true;
  }
  return false;
}

CpuCachingAllocator::~CpuCachingAllocator() {
  const auto used = static_cast<std::size_t>(top_ - base_);
  ASAN_UNPOISON_MEMORY_REGION(base_, used);
  ::munmap(base_, fixed_base_ == nullptr ? address_space_ : used);
  if (fixed_base_ != nullptr) ::munmap(fixed_base_, kPage);
}

/// Makes the addresses [data, data + bytes) readable and writable.
bool CpuCachingAllocator::commit(std::byte* data, std::size_t bytes) const {
  return fixed_base_ == nullptr ? ::mprotect(data, bytes, PROT_READ | PROT_WRITE) == 0
                                : map_at(data, bytes, PROT_READ | PROT_WRITE);
}

void* CpuCachingAllocator::allocate(std::size_t bytes) {
  if (bytes > address_space_) return nullptr;
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), kCacheLine) + sizeof(Block);
  const std::lock_guard lock(mutex_);
  Block* block = find(size);
  if (block == nullptr) block = grow(size);
  if (block == nullptr) return nullptr;
  block->is_free = false;
  // The released pages may lie anywhere in the block, so all of them count as committed again.
  if (block->returned > 0) {
    decommitted_bytes_ -= std::exchange(block->returned, 0);
    ++counts_.system_calls;
  }
  split(block, size);
  ++counts_.allocations;
  ASAN_UNPOISON_MEMORY_REGION(block->data(), block->capacity());
  return block->data();
}

void CpuCachingAllocator::free(void* data) {
  Block* block = static_cast<Block*>(data) - 1;
  const std::lock_guard lock(mutex_);
  MEGATRON_CHECK(!block->is_free, "a block of memory was freed twice");
  insert(coalesce(block));
}

std::size_t CpuCachingAllocator::usable_size(const void* data) {
  return (static_cast<const Block*>(data) - 1)->capacity();
}

void CpuCachingAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  for (Block* block = top_ == base_ ? nullptr : first_block(); block != nullptr;
       block = after(block)) {
    if (!block->is_free) continue;
    const std::size_t head = gap(block->data(), kPage);
    if (block->capacity() < head + kPage) continue;
    const std::size_t bytes = (block->capacity() - head) / kPage * kPage;
    if (::madvise(block->data() + head, bytes, MADV_DONTNEED) != 0) continue;
    decommitted_bytes_ += bytes - block->returned;
    block->returned = bytes;
  }
}

CpuCachingAllocator::Statistics CpuCachingAllocator::statistics() const {
  const std::lock_guard lock(mutex_);
  Statistics result = counts_;
  result.reserved_bytes = static_cast<std::size_t>(top_ - base_) - decommitted_bytes_;
  return result;
}

int CpuCachingAllocator::size_class(std::size_t size) {
  const std::size_t lines = size / kCacheLine;
  if (lines < kLinearSizeClasses) return static_cast<int>(lines);
  const auto bits = static_cast<int>(std::bit_width(lines));
  const int doubling = bits - static_cast<int>(std::bit_width(std::size_t{kLinearSizeClasses}));
  return std::min((doubling + 1) * kLinearSizeClasses +
                      static_cast<int>((lines >> doubling) % kLinearSizeClasses),
                  kBitmapWords * 64 - 1);
}

CpuCachingAllocator::Block* CpuCachingAllocator::after(Block* block) const {
  return block == last_
             ? nullptr
             : reinterpret_cast<Block*>(reinterpret_cast<std::byte*>(block) + block->size);
}

/// Removes the smallest free block that is large enough from its list and returns it. Equal blocks
/// are ordered by address, so the choice depends only on the live blocks and not on the history:
/// every training step allocates the same addresses.
CpuCachingAllocator::Block* CpuCachingAllocator::find(std::size_t size) {
  for (int index = size_class(size); index < kBitmapWords * 64; ++index) {
    const std::uint64_t rest = free_list_bitmap_[index / 64] >> (index % 64);
    if (rest == 0) {
      index |= 63;
      continue;
    }
    index += std::countr_zero(rest);
    Block* best = nullptr;
    for (Block* block = free_lists_[index]; block != nullptr; block = block->next) {
      if (block->size >= size &&
          (best == nullptr || std::pair(block->size, block) < std::pair(best->size, best)))
        best = block;
    }
    if (best == nullptr) continue;
    remove(best);
    return best;
  }
  return nullptr;
}

/// Commits memory at the top of the heap and returns a block of at least `size` that is in no list.
CpuCachingAllocator::Block* CpuCachingAllocator::grow(std::size_t size) {
  const bool extends = last_ != nullptr && last_->is_free;
  const std::size_t bytes = round_up(size - (extends ? last_->size : 0), options_.growth_bytes);
  if (bytes > address_space_ - static_cast<std::size_t>(top_ - base_)) return nullptr;
  if (!commit(top_, bytes)) return nullptr;
  if (options_.on_grow != nullptr) options_.on_grow(top_, bytes);
  ++counts_.system_calls;
  auto* block = reinterpret_cast<Block*>(top_);
  top_ += bytes;
  if (extends) {
    remove(last_);
    last_->size += bytes;
    return last_;
  }
  *block = {.size = bytes, .before = last_};
  return last_ = block;
}

/// Shrinks a block to `size` bytes and frees the rest, if the rest can hold a block.
void CpuCachingAllocator::split(Block* block, std::size_t size) {
  if (block->size < size + sizeof(Block) + kCacheLine) return;
  const std::size_t rest_size = block->size - size;
  auto* rest = reinterpret_cast<Block*>(reinterpret_cast<std::byte*>(block) + size);
  ASAN_UNPOISON_MEMORY_REGION(rest, sizeof(Block));
  *rest = {.size = rest_size, .before = block};
  if (Block* next = after(block)) next->before = rest;
  if (last_ == block) last_ = rest;
  block->size = size;
  insert(rest);
}

CpuCachingAllocator::Block* CpuCachingAllocator::coalesce(Block* block) {
  if (Block* next = after(block); next != nullptr && next->is_free) {
    remove(next);
    block->size += next->size;
    block->returned += next->returned;
    if (last_ == next) last_ = block;
  }
  if (Block* before = block->before; before != nullptr && before->is_free) {
    remove(before);
    before->size += block->size;
    before->returned += block->returned;
    if (last_ == block) last_ = before;
    block = before;
  }
  if (Block* next = after(block)) next->before = block;
  return block;
}

void CpuCachingAllocator::insert(Block* block) {
  const int index = size_class(block->size);
  block->is_free = true;
  block->previous = nullptr;
  block->next = free_lists_[index];
  if (block->next != nullptr) block->next->previous = block;
  free_lists_[index] = block;
  free_list_bitmap_[index / 64] |= std::uint64_t{1} << (index % 64);
  ASAN_POISON_MEMORY_REGION(block->data(), block->capacity());
}

void CpuCachingAllocator::remove(Block* block) {
  const int index = size_class(block->size);
  if (block->previous != nullptr) {
    block->previous->next = block->next;
  } else {
    free_lists_[index] = block->next;
    if (block->next == nullptr)
      free_list_bitmap_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
  }
  if (block->next != nullptr) block->next->previous = block->previous;
}

}  // namespace megatron
