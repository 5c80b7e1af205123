#include "megatron/datasets/continued_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Opens files for writing at a given size, where FileSystem::create() would empty them.
class ContinuedFiles : public FileSystem {
 public:
  explicit ContinuedFiles(std::uint64_t size) : size_(size) {}
  /// There are as many open files as partitions, three times.
  std::size_t buffer_bytes() const override { return std::size_t{1} << 18; }
  int create(const fs::path& path) override {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return -1;
    if (::ftruncate(descriptor, static_cast<off_t>(size_)) == 0 &&
        ::lseek(descriptor, 0, SEEK_END) >= 0)
      return descriptor;
    const int code = errno;
    ::close(descriptor);
    errno = code;
    return -1;
  }

 private:
  std::uint64_t size_;
};

}  // namespace

/// A writer and the file system that it refers to.
struct ContinuedFile::Opened {
  Opened(const fs::path& path, std::uint64_t size)
      : begin(size), files(size), writer(path, files) {}
  std::uint64_t size() const { return begin + writer.position(); }
  std::uint64_t begin;
  ContinuedFiles files;
  FileWriter writer;
};

ContinuedFile::ContinuedFile(fs::path path, std::uint64_t resumed) : path_(std::move(path)) {
  if (resumed == 0) {
    FileWriter(path_).close();
  } else {
    std::error_code code;
    const std::uintmax_t held = fs::file_size(path_, code);
    if (code || held < resumed)
      throw UserError({path_.string() + " is shorter than what was written to it", "", ""});
  }
  opened_ = std::make_unique<Opened>(path_, resumed);
}

ContinuedFile::ContinuedFile(ContinuedFile&&) noexcept = default;
ContinuedFile::~ContinuedFile() = default;

FileWriter& ContinuedFile::writer() { return opened_->writer; }

std::uint64_t ContinuedFile::checkpoint() {
  const std::uint64_t size = opened_->size();
  close();
  opened_ = std::make_unique<Opened>(path_, size);
  return size;
}

void ContinuedFile::close() {
  if (opened_) opened_->writer.close(/*sync=*/true);
  opened_.reset();
}

void ContinuedFile::remove() {
  opened_.reset();
  std::error_code ignored;
  fs::remove(path_, ignored);
}

}  // namespace megatron
