#include "megatron/base/huge_pages.h"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace megatron {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

void* allocate_huge_pages(std::size_t bytes) {
  void* block = nullptr;
  if (bytes < kHugePage / 2) {
    block = std::malloc(bytes);
  } else {
    const std::size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
    if (rounded >= bytes) block = std::aligned_alloc(kHugePage, rounded);
    // Without huge pages, the memory is the same on small ones.
    if (block != nullptr) ::madvise(block, rounded, MADV_HUGEPAGE);
  }
  if (block == nullptr) throw std::bad_alloc();
  return block;
}

void free_huge_pages(void* block) noexcept { std::free(block); }

}  // namespace megatron
