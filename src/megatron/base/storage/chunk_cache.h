// A folder of files with a bounded total size, shared by threads and processes. The files are parts
// of remote objects.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "megatron/base/files.h"

namespace megatron {

/// The name and size of a file of the cache. Other contents need another name.
struct CacheChunk {
  std::string name;
  std::uint64_t size = 0;
};

/// Thread-safe. A file is written under a temporary name and then renamed, so it is whole or
/// absent; what killed processes leave is removed. One process or thread makes a file while the
/// others that need it wait. Files that were not used for longest are removed first.
class ChunkCache {
 public:
  /// Fills the file's memory.
  using Fill = std::function<void(std::span<std::byte>)>;

  /// All files together, those being written included, take at most `max_bytes`.
  ChunkCache(fs::path folder, std::uint64_t max_bytes);

  /// Copies bytes from `offset` of a chunk, which `fill` makes if it is not there. Throws a
  /// UserError if the folder cannot be written, and what `fill` throws.
  void read(const CacheChunk& chunk, std::uint64_t offset, std::span<std::byte> bytes,
            const Fill& fill) const;

 private:
  Descriptor open_or_make(const CacheChunk& chunk, const Fill& fill) const;
  Descriptor make(const CacheChunk& chunk, const Fill& fill) const;
  FileLock reserve(const CacheChunk& chunk, fs::path& temporary) const;
  bool make_room(std::uint64_t bytes) const;

  fs::path folder_;
  std::uint64_t max_bytes_;
};

}  // namespace megatron
