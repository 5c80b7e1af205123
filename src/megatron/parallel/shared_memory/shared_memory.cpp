#include "megatron/parallel/shared_memory/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Bytes after the block that hold a number to distinguish it from any other file.
constexpr std::size_t kTokenBytes = 4096;

std::byte* map(std::size_t bytes, int flags, int file) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
  return data == MAP_FAILED ? nullptr : static_cast<std::byte*>(data);
}

std::uint64_t random_token() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32 | device()) | 1;
}

struct Handle {
  int process, file;
  std::uint64_t token;
};

bool parse(const std::string& text, Handle& handle) {
  return std::sscanf(text.c_str(), "%d %d %" SCNu64, &handle.process, &handle.file,
                     &handle.token) == 3;
}

/// Opens a file. Returns no descriptor unless `path` is a regular file of that size, because a
/// descriptor number from another namespace may lead to any file.
Descriptor open_file(const std::string& path, std::size_t bytes) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<std::size_t>(status.st_size) != bytes)
    return Descriptor();
  return Descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

}  // namespace

SharedMemory::SharedMemory(std::byte* data, std::size_t bytes, Descriptor file, std::string handle)
    : data_(data), bytes_(bytes), file_(std::move(file)), handle_(std::move(handle)) {}

SharedMemory::~SharedMemory() { ::munmap(data_, bytes_ + kTokenBytes); }

std::shared_ptr<SharedMemory> SharedMemory::for_threads(std::size_t bytes) {
  std::byte* data = map(bytes + kTokenBytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  MEGATRON_CHECK(data != nullptr, "cannot map ", bytes,
                 " bytes of shared memory: ", std::strerror(errno));
  return std::shared_ptr<SharedMemory>(new SharedMemory(data, bytes, Descriptor(), ""));
}

std::shared_ptr<SharedMemory> SharedMemory::for_processes(std::size_t bytes) {
  const std::size_t whole = bytes + kTokenBytes;
  Descriptor file(::memfd_create(kSharedMemoryName, MFD_CLOEXEC));
  std::byte* data = file.is_open() && ::ftruncate(file.number(), static_cast<off_t>(whole)) == 0
                        ? map(whole, MAP_SHARED | MAP_NORESERVE, file.number())
                        : nullptr;
  if (data == nullptr) {
    const int reason = errno;
    throw UserError({.what = "the ranks of this host cannot share memory",
                     .got = std::strerror(reason),
                     .fix = std::string(reason == EFBIG ? "raise the file size limit (ulimit -f)"
                                                        : "allow memfd_create in this container") +
                            ", or use sockets: --cpu-transport gloo"});
  }
  const std::uint64_t token = random_token();
  std::memcpy(data + bytes, &token, sizeof(token));
  const std::string handle = std::to_string(::getpid()) + " " + std::to_string(file.number()) +
                             " " + std::to_string(token);
  return std::shared_ptr<SharedMemory>(new SharedMemory(data, bytes, std::move(file), handle));
}

std::shared_ptr<SharedMemory> SharedMemory::open(const std::string& text, std::size_t bytes) {
  Handle handle{};
  if (!parse(text, handle)) return nullptr;
  const std::size_t whole = bytes + kTokenBytes;
  const Descriptor file = open_file(
      "/proc/" + std::to_string(handle.process) + "/fd/" + std::to_string(handle.file), whole);
  if (!file.is_open()) return nullptr;
  std::byte* data = map(whole, MAP_SHARED | MAP_NORESERVE, file.number());
  if (data == nullptr) return nullptr;
  std::shared_ptr<SharedMemory> block(new SharedMemory(data, bytes, Descriptor(), text));
  return std::memcmp(data + bytes, &handle.token, sizeof(handle.token)) == 0 ? block : nullptr;
}

}  // namespace megatron
