// Memory for blocks that come and go in the same sizes step after step: one stretch of address
// space whose pages stay when a block is freed. Best fit with immediate merging of neighbours
// (boundary tags: Knuth, The Art of Computer Programming 1, 2.5; lists by size as in Masmano et
// al., "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004), so a freed block
// serves any size and fragmentation stays small.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace megatron {

class CpuCachingAllocator {
 public:
  struct Options {
    std::size_t address_space = 0;  ///< bytes it may grow to; less when the system grants less
    bool reserve_upfront = true;  ///< sets all of it aside at once, without memory behind it; else
                                  ///< takes it as it grows, for processes whose address space is
                                  ///< limited (RLIMIT_AS, which counts what is set aside too)
    std::size_t growth_bytes = 0;  ///< memory is taken from the system in multiples of it; a power
                                   ///< of two of at least a page
    void (*on_grow)(std::byte* data, std::size_t bytes) =
        nullptr;  ///< is shown what was taken before a block is made of it; must not allocate here
  };

  struct Statistics {
    std::size_t reserved_bytes = 0;  ///< taken from the system, in blocks or free
    std::int64_t allocations = 0;    ///< blocks given out so far
    std::int64_t system_calls =
        0;  ///< how often memory was taken from the system, or taken back after empty_cache
  };

  explicit CpuCachingAllocator(const Options& options);
  CpuCachingAllocator(const CpuCachingAllocator&) = delete;
  CpuCachingAllocator& operator=(const CpuCachingAllocator&) = delete;
  ~CpuCachingAllocator();

  /// A block of at least `bytes` that starts at a cache line (64 bytes), from any thread; nullptr
  /// when there is no more memory.
  void* allocate(std::size_t bytes);
  /// Takes back a block of allocate(), from any thread.
  void free(void* data);
  bool owns(const void* data) const { return data >= base_ && data < base_ + address_space_; }
  /// What a block really has, at least what was asked for.
  static std::size_t usable_size(const void* data);

  /// Hands the pages of free blocks to the system; they come back, as zeros, when they are used
  /// again.
  void empty_cache();
  Statistics statistics() const;

 private:
  struct Block;
  static constexpr int kBitmapWords = 16;

  static int size_class(std::size_t size);
  Block* first_block() const { return reinterpret_cast<Block*>(base_); }
  Block* after(Block* block) const;
  Block* find(std::size_t size);
  Block* grow(std::size_t size);
  void split(Block* block, std::size_t size);
  /// With its free neighbours, not in a list yet.
  Block* coalesce(Block* block);
  void insert(Block* block);
  void remove(Block* block);

  void reserve_all();
  bool map_fixed_base();
  bool commit(std::byte* data, std::size_t bytes) const;

  const Options options_;
  std::byte* fixed_base_ = nullptr;  ///< of a heap that takes addresses as it grows
  std::byte* base_ = nullptr;
  std::size_t address_space_ = 0;
  mutable std::mutex mutex_;
  std::byte* top_ = nullptr;  ///< end of what was taken from the system
  Block* last_ = nullptr;
  std::size_t decommitted_bytes_ = 0;
  Statistics counts_;
  std::array<std::uint64_t, kBitmapWords> free_list_bitmap_{};  ///< which lists have blocks
  std::array<Block*, kBitmapWords * 64> free_lists_{};
};

}  // namespace megatron
