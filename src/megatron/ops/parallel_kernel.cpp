#include "megatron/ops/parallel_kernel.h"

#include <sys/mman.h>

#include <atomic>
#include <new>

namespace megatron {
namespace {

std::atomic<std::int64_t>& bytes_of_all_threads() {
  static std::atomic<std::int64_t> bytes = 0;
  return bytes;
}

/// Pages of their own. In the heap of tensors, a workspace that outlives the step in which it grew
/// would divide a gap that the largest tensor of the next step needs.
class Workspace {
 public:
  Workspace() = default;
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  ~Workspace() { release(); }

  void* at_least(std::int64_t bytes) {
    if (bytes <= bytes_) return data_;
    release();
    constexpr std::int64_t kPage = 4096;
    const std::int64_t rounded = (bytes + kPage - 1) / kPage * kPage;
    void* const data = ::mmap(nullptr, static_cast<std::size_t>(rounded), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw std::bad_alloc();
    data_ = data;
    bytes_ = rounded;
    bytes_of_all_threads() += bytes_;
    return data_;
  }

 private:
  void release() {
    if (data_ == nullptr) return;
    ::munmap(data_, static_cast<std::size_t>(bytes_));
    bytes_of_all_threads() -= bytes_;
    data_ = nullptr;
    bytes_ = 0;
  }

  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace

void* thread_workspace(std::int64_t bytes) {
  thread_local Workspace workspace;
  return workspace.at_least(bytes);
}

std::int64_t thread_workspace_bytes() { return bytes_of_all_threads(); }

}  // namespace megatron
