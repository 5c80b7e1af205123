#include "megatron/base/storage/range_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

LocalRangeReader::LocalRangeReader(fs::path path) : path_(std::move(path)) {
  // Without O_NONBLOCK, opening a named pipe would wait for its writer.
  descriptor_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!descriptor_.is_open()) throw_file_error("open", path_, errno);
  struct stat status {};
  if (::fstat(descriptor_.number(), &status) != 0) throw_file_error("read", path_, errno);
  if (!S_ISREG(status.st_mode))
    throw UserError({"cannot read " + path_.string(), "it is not a regular file",
                     "put the file itself there, not a folder, a pipe or a device"});
  size_ = static_cast<std::uint64_t>(status.st_size);
  version_ = std::to_string(size_) + "-" + std::to_string(status.st_mtim.tv_sec) + "." +
             std::to_string(status.st_mtim.tv_nsec);
}

void LocalRangeReader::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  read_at(descriptor_.number(), path_, offset, bytes);
}

void read_at(int descriptor, const fs::path& path, std::uint64_t offset,
             std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_file_error("read", path, errno);
    if (count == 0)
      throw UserError({"cannot read " + path.string(), "the file became shorter",
                       "do not change data files during a run"});
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

}  // namespace megatron
