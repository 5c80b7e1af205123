#include "megatron/base/storage/remote_storage.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/storage/chunk_cache.h"
#include "megatron/base/storage/range_reader.h"

namespace megatron {
namespace {

constexpr std::uint64_t kCopyBytes = std::uint64_t{16} << 20;

/// Reads another file through a cache of its chunks.
class CachedRangeReader : public RangeReader {
 public:
  CachedRangeReader(std::unique_ptr<RangeReader> remote, const StorageOptions& options)
      : remote_(std::move(remote)),
        cache_(options.cache_path / "chunks", options.cache_bytes),
        chunk_bytes_(options.chunk_bytes),
        key_(checksum_hex(checksum(remote_->name() + "\n" + remote_->version() + "\n" +
                                   std::to_string(remote_->size()) + "\n" +
                                   std::to_string(chunk_bytes_)))) {}

  std::string name() const override { return remote_->name(); }
  std::uint64_t size() const override { return remote_->size(); }
  std::string version() const override { return remote_->version(); }

  void read(std::uint64_t offset, std::span<std::byte> bytes) const override {
    MEGATRON_CHECK(offset <= size() && bytes.size() <= size() - offset, bytes.size(), " bytes at ",
                   offset, " of ", name(), " are outside its ", size());
    while (!bytes.empty()) {
      const std::uint64_t number = offset / chunk_bytes_, begin = number * chunk_bytes_;
      const CacheChunk chunk{.name = key_ + "-" + std::to_string(number),
                             .size = std::min(chunk_bytes_, size() - begin)};
      const std::uint64_t count =
          std::min<std::uint64_t>(bytes.size(), begin + chunk.size - offset);
      cache_.read(chunk, offset - begin, bytes.first(count),
                  [&](std::span<std::byte> memory) { remote_->read(begin, memory); });
      offset += count;
      bytes = bytes.subspan(count);
    }
  }

 private:
  std::unique_ptr<RangeReader> remote_;
  ChunkCache cache_;
  std::uint64_t chunk_bytes_;
  std::string key_;
};

void check_options(const std::string& path, const StorageOptions& options) {
  if (options.cache_path.empty())
    throw UserError({"data at " + path.substr(0, path.find('?')) + " need a folder for copies", "",
                     "give one with --object-storage-cache-path"});
  if (options.chunk_bytes > options.cache_bytes)
    throw UserError({"--object-storage-chunk-mib is larger than --object-storage-cache-mib",
                     std::to_string(options.chunk_bytes >> 20) + " and " +
                         std::to_string(options.cache_bytes >> 20),
                     "raise the size of the cache, or lower that of its chunks"});
}

/// Copies a whole file and its version, in this order.
void copy_whole(const RangeReader& remote, const fs::path& path, const fs::path& version_path) {
  std::error_code ignored;
  fs::remove(version_path, ignored);
  const fs::path temporary = path.string() + ".tmp";
  try {
    FileWriter writer(temporary);
    std::vector<std::byte> buffer(std::min(remote.size(), kCopyBytes));
    for (std::uint64_t offset = 0; offset < remote.size(); offset += buffer.size()) {
      const std::span<std::byte> part =
          std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), remote.size() - offset));
      remote.read(offset, part);
      writer.write(part.data(), part.size());
    }
    writer.close(/*sync=*/true);
    std::error_code code;
    fs::rename(temporary, path, code);
    if (code) throw_file_error("rename to", path, code.value());
  } catch (const UserError&) {
    fs::remove(temporary, ignored);
    throw;
  }
  write_file_atomically(version_path, remote.version() + "\n");
}

}  // namespace

std::unique_ptr<RangeReader> open_range_reader(const std::string& path,
                                               const StorageOptions& options) {
  if (!is_remote_path(path)) return std::make_unique<LocalRangeReader>(path);
  check_options(path, options);
  auto remote = std::make_unique<HttpRangeReader>(locate_object(path), options.retries);
  if (remote->version().empty()) return remote;  // cached chunks may be of another object
  return std::make_unique<CachedRangeReader>(std::move(remote), options);
}

fs::path local_copy(const std::string& path, const StorageOptions& options) {
  if (!is_remote_path(path)) return path;
  check_options(path, options);
  const ObjectLocation object = locate_object(path);
  const HttpRangeReader remote(object, options.retries);
  const fs::path copy = options.cache_path / object.cache_name();
  const fs::path version_path = copy.string() + ".version";
  megatron::create_directories(copy.parent_path());
  const FileLock lock(copy.string() + ".lock");
  std::error_code code;
  const bool is_current = !remote.version().empty() && fs::exists(version_path, code) &&
                          read_file(version_path) == remote.version() + "\n" &&
                          fs::file_size(copy, code) == remote.size() && !code;
  if (!is_current) copy_whole(remote, copy, version_path);
  return copy;
}

}  // namespace megatron
