#include "megatron/base/storage/chunk_cache.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/storage/range_reader.h"

namespace megatron {
namespace {

constexpr std::uint64_t kMakerLocks = 64;
constexpr auto kWaitForRoom = std::chrono::milliseconds(20);
constexpr const char* kTemporary = ".tmp.";

/// Opens the file of a chunk. Returns no descriptor if it is not there, or not of its size.
Descriptor open_chunk(const fs::path& path, std::uint64_t size) {
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.is_open() && errno != ENOENT) throw_file_error("open", path, errno);
  struct stat status {};
  const bool has_size = descriptor.is_open() && ::fstat(descriptor.number(), &status) == 0 &&
                        static_cast<std::uint64_t>(status.st_size) == size;
  return has_size ? std::move(descriptor) : Descriptor();
}

/// A file in the folder, with what decides whether it may be removed.
struct Entry {
  fs::path path;
  std::uint64_t bytes = 0;
  std::pair<std::int64_t, std::int64_t> last_use;  ///< seconds, nanoseconds
};

/// Maps the memory of a file that posix_fallocate has given its size.
void fill_file(const fs::path& path, std::uint64_t size, const ChunkCache::Fill& fill) {
  const Descriptor descriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!descriptor.is_open()) throw_file_error("open", path, errno);
  void* memory = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor.number(), 0);
  if (memory == MAP_FAILED) throw_file_error("map", path, errno);
  try {
    fill({static_cast<std::byte*>(memory), size});
  } catch (...) {
    ::munmap(memory, size);
    throw;
  }
  const int failed = ::msync(memory, size, MS_SYNC) != 0 ? errno : 0;
  ::munmap(memory, size);
  if (failed != 0) throw_file_error("flush", path, failed);
}

}  // namespace

ChunkCache::ChunkCache(fs::path folder, std::uint64_t max_bytes)
    : folder_(std::move(folder)), max_bytes_(max_bytes) {
  megatron::create_directories(folder_);
}

void ChunkCache::read(const CacheChunk& chunk, std::uint64_t offset, std::span<std::byte> bytes,
                      const Fill& fill) const {
  MEGATRON_CHECK(chunk.size <= max_bytes_, "a chunk of ", chunk.size, " bytes, the limit is ",
                 max_bytes_);
  const Descriptor file = open_or_make(chunk, fill);
  ::futimens(file.number(), nullptr);  // Another user's files keep their time, and leave earlier.
  read_at(file.number(), folder_ / chunk.name, offset, bytes);
}

Descriptor ChunkCache::open_or_make(const CacheChunk& chunk, const Fill& fill) const {
  const fs::path path = folder_ / chunk.name;
  if (Descriptor file = open_chunk(path, chunk.size); file.is_open()) return file;
  // Those who need the same chunk share a lock, and whoever comes first makes it.
  const FileLock lock(folder_ / ("lock-" + std::to_string(checksum(chunk.name) % kMakerLocks)));
  if (Descriptor file = open_chunk(path, chunk.size); file.is_open()) return file;
  return make(chunk, fill);
}

Descriptor ChunkCache::make(const CacheChunk& chunk, const Fill& fill) const {
  const fs::path path = folder_ / chunk.name;
  fs::path temporary;
  const FileLock reserved = reserve(chunk, temporary);
  std::error_code ignored;
  try {
    fill_file(temporary, chunk.size, fill);
    // Under the lock, so that no other process misses it under both names.
    const FileLock lock(folder_ / "lock");
    // Opened before others can see and remove it, so that it is read in any case.
    Descriptor file = open_chunk(temporary, chunk.size);
    if (file.is_open() && ::rename(temporary.c_str(), path.c_str()) == 0) return file;
    throw_file_error("rename to", path, file.is_open() ? errno : EIO);
  } catch (...) {
    fs::remove(temporary, ignored);
    throw;
  }
}

/// Creates a file of the chunk's size when there is room for it, and keeps it locked, so that
/// others know that its maker lives.
FileLock ChunkCache::reserve(const CacheChunk& chunk, fs::path& temporary) const {
  for (;; std::this_thread::sleep_for(kWaitForRoom)) {
    const FileLock lock(folder_ / "lock");
    if (!make_room(chunk.size)) continue;
    int number = 0;
    std::error_code ignored;
    do {
      temporary = folder_ / (chunk.name + kTemporary + std::to_string(number++));
    } while (fs::exists(temporary, ignored));
    FileLock own(temporary);
    const Descriptor file(::open(temporary.c_str(), O_RDWR | O_CLOEXEC));
    const int code = file.is_open()
                         ? ::posix_fallocate(file.number(), 0, static_cast<off_t>(chunk.size))
                         : errno;
    if (code == 0) return own;
    fs::remove(temporary, ignored);
    throw_file_error("reserve " + std::to_string(chunk.size) + " bytes for", temporary, code);
  }
}

/// Removes files until `bytes` more fit. Returns false if those that others are writing leave no
/// room. The caller holds the folder's lock.
bool ChunkCache::make_room(std::uint64_t bytes) const {
  std::vector<Entry> entries;
  std::uint64_t total = bytes;
  std::error_code ignored;
  for (const auto& file : fs::directory_iterator(folder_, ignored)) {
    const fs::path& path = file.path();
    struct stat status {};
    if (path.filename().string().starts_with("lock") || ::stat(path.c_str(), &status) != 0)
      continue;
    if (path.filename().string().find(kTemporary) == std::string::npos) {
      entries.push_back({path,
                         static_cast<std::uint64_t>(status.st_size),
                         {status.st_mtim.tv_sec, status.st_mtim.tv_nsec}});
    } else if (!FileLock::is_held(path)) {
      fs::remove(path, ignored);  // its maker was killed
      continue;
    }
    total += static_cast<std::uint64_t>(status.st_size);
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.last_use < b.last_use; });
  for (auto entry = entries.begin(); entry != entries.end() && total > max_bytes_; ++entry) {
    fs::remove(entry->path, ignored);
    total -= entry->bytes;
  }
  return total <= max_bytes_;
}

}  // namespace megatron
