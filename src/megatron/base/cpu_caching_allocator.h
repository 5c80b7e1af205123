// A caching allocator for CPU tensors, whose sizes repeat in every step. It reserves one range of
// address space and keeps the pages of freed blocks. It uses best fit and merges free neighbours at
// once (boundary tags: Knuth, The Art of Computer Programming 1, 2.5; size classes: Masmano et al.,
// "TLSF: a new dynamic memory allocator for real-time systems", ECRTS 2004).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace megatron {

/// Allocates blocks from one range of address space. All public functions are thread-safe.
class CpuCachingAllocator {
 public:
  struct Options {
    /// The largest size of the heap in bytes. It is smaller if the system grants less.
    std::size_t address_space = 0;
    /// Whether the constructor reserves the whole address space, without committing memory. If
    /// false, the heap maps addresses as it grows. Use false if RLIMIT_AS is set, because the limit
    /// counts reserved addresses.
    bool reserve_upfront = true;
    /// The heap grows by multiples of this many bytes. It must be a power of two and at least a
    /// page.
    std::size_t growth_bytes = 0;
    /// Is called with every newly committed range before blocks are made from it. It must not
    /// allocate from this allocator.
    void (*on_grow)(std::byte* data, std::size_t bytes) = nullptr;
  };

  struct Statistics {
    std::size_t reserved_bytes = 0;  ///< bytes committed by the system, in use or free
    std::int64_t allocations = 0;    ///< number of allocate() calls that succeeded
    /// Number of times the heap grew, or reused memory that empty_cache() had released.
    std::int64_t system_calls = 0;
  };

  explicit CpuCachingAllocator(const Options& options);
  CpuCachingAllocator(const CpuCachingAllocator&) = delete;
  CpuCachingAllocator& operator=(const CpuCachingAllocator&) = delete;
  ~CpuCachingAllocator();

  /// Returns a block of at least `bytes` bytes, aligned to a cache line (64 bytes), or nullptr if
  /// there is no memory left.
  void* allocate(std::size_t bytes);
  /// Frees a block that allocate() returned.
  void free(void* data);
  /// Returns whether `data` lies in this heap's address space.
  bool owns(const void* data) const { return data >= base_ && data < base_ + address_space_; }
  /// Returns the usable size of a block in bytes, which is at least the requested size.
  static std::size_t usable_size(const void* data);

  /// Releases the pages of free blocks to the system. They read as zeros when they are used again.
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
  /// Merges a block with its free neighbours. The result is in no free list.
  Block* coalesce(Block* block);
  void insert(Block* block);
  void remove(Block* block);

  void reserve_all();
  bool map_fixed_base();
  bool commit(std::byte* data, std::size_t bytes) const;

  const Options options_;
  std::byte* fixed_base_ = nullptr;  ///< set if reserve_upfront is false: the heap's region
  std::byte* base_ = nullptr;
  std::size_t address_space_ = 0;
  mutable std::mutex mutex_;
  std::byte* top_ = nullptr;  ///< end of the committed memory
  Block* last_ = nullptr;
  std::size_t decommitted_bytes_ = 0;
  Statistics counts_;
  std::array<std::uint64_t, kBitmapWords>
      free_list_bitmap_{};  ///< bit i: free_lists_[i] is not empty
  std::array<Block*, kBitmapWords * 64> free_lists_{};
};

}  // namespace megatron
