#include "megatron/parallel/transport/shared_block.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "megatron/base/error.h"

namespace megatron {

std::shared_ptr<SharedBlock> SharedBlock::of_threads(std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MEGATRON_CHECK(data != MAP_FAILED, "no ", bytes, " bytes for ranks to meet in: ", std::strerror(errno));
  return std::shared_ptr<SharedBlock>(new SharedBlock(static_cast<std::byte*>(data), bytes));
}

SharedBlock::~SharedBlock() { ::munmap(data_, bytes_); }

}  // namespace megatron
