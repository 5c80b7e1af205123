#include "megatron/datasets/text_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <vector>

#include "megatron/base/descriptor.h"
#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr std::size_t kInputBuffer = std::size_t{1} << 18;

[[noreturn]] void throw_damaged_file(const fs::path& path, const std::string& how) {
  throw UserError(
      {path.string() + ": damaged or truncated " + how, "", "copy or download the file again"});
}

constexpr std::size_t kLongestSignature = 10;

/// zstd data may begin with a skippable frame (RFC 8878, 3.1.2), as pzstd writes it.
bool is_zstd(std::string_view start) {
  if (start.starts_with("\x28\xb5\x2f\xfd")) return true;
  return start.size() >= 4 && (start[0] & 0xf0) == 0x50 && start.substr(1, 3) == "\x2a\x4d\x18";
}

/// Throws a UserError for compressed files that are not read. `start` holds the first bytes.
void refuse_other_formats(const fs::path& path, std::string_view start) {
  struct Format {
    std::string_view name, first, behind_4, program;
  };
  constexpr std::array kFormats = {Format{"xz", "\xfd\x37zXZ", "", "xz -dc"},
                                   Format{"bzip2", "BZh", "1AY&SY", "bzip2 -dc"},
                                   Format{"zip", "PK\x03\x04", "", "unzip -p"}};
  for (const Format& format : kFormats) {
    if (!start.starts_with(format.first) || start.size() < 4 ||
        !start.substr(4).starts_with(format.behind_4))
      continue;
    const std::string name = path == kStandardInput ? "the standard input" : path.string();
    throw UserError({name + " is compressed with " + std::string(format.name),
                     "only gzip and zstd are read",
                     "decompress it with " + std::string(format.program) +
                         ", whose output --input - reads too"});
  }
}

/// Reads the bytes of a file unchanged and supports peeking at the first ones.
class PlainStream : public TextStream {
 public:
  PlainStream(const fs::path& path, const StopEvent* stop)
      : path_(path), stop_(path == kStandardInput ? stop : nullptr) {
    descriptor_ = Descriptor(path == kStandardInput ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                                    : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat status {};
    if (descriptor_.is_open() && ::fstat(descriptor_.number(), &status) == 0 &&
        S_ISDIR(status.st_mode))
      throw UserError({"cannot read " + path.string(), "it is a folder",
                       "give its files, for example " + (path / "*.jsonl").string()});
    if (!descriptor_.is_open())
      throw UserError({"cannot open " + path.string(), std::strerror(errno), "check the path"});
  }

  /// Returns the first bytes without consuming them.
  std::string_view peek(std::size_t size) {
    ahead_.resize(size);
    std::size_t have = 0;
    while (have < size) {
      const std::size_t count = read_file(ahead_.data() + have, size - have);
      if (count == 0) break;
      have += count;
    }
    ahead_.resize(have);
    return ahead_;
  }

  std::size_t read(char* data, std::size_t size) override {
    std::size_t count = std::min(size, ahead_.size());
    if (count > 0) {
      std::memcpy(data, ahead_.data(), count);
      ahead_.erase(0, count);
    } else {
      count = read_file(data, size);
    }
    bytes_read_ += count;
    return count;
  }

  void skip(std::uint64_t size) override {
    const std::size_t ahead = std::min<std::uint64_t>(size, ahead_.size());
    ahead_.erase(0, ahead);
    bytes_read_ += size;
    if (size > ahead &&
        ::lseek(descriptor_.number(), static_cast<off_t>(size - ahead), SEEK_CUR) < 0)
      throw UserError({"cannot read " + path_.string(), std::strerror(errno), ""});
  }

  std::uint64_t bytes_read() const override { return bytes_read_; }
  const fs::path& path() const { return path_; }

 private:
  std::size_t read_file(char* data, std::size_t size) {
    for (;;) {
      if (stop_ != nullptr && !stop_->wait_readable(descriptor_.number())) return 0;
      const ssize_t count = ::read(descriptor_.number(), data, size);
      if (count >= 0) return static_cast<std::size_t>(count);
      if (errno != EINTR)
        throw UserError({"cannot read " + path_.string(), std::strerror(errno), ""});
    }
  }

  fs::path path_;
  const StopEvent* stop_;
  Descriptor descriptor_;
  std::string ahead_;
  std::uint64_t bytes_read_ = 0;
};

class GzipStream : public TextStream {
 public:
  explicit GzipStream(std::unique_ptr<PlainStream> file)
      : file_(std::move(file)), input_(kInputBuffer) {
    constexpr int kGzipOnly = 15 + 16;
    MEGATRON_CHECK(::inflateInit2(&state_, kGzipOnly) == Z_OK, "zlib cannot be initialized");
  }
  ~GzipStream() override { ::inflateEnd(&state_); }

  std::size_t read(char* data, std::size_t size) override {
    state_.next_out = reinterpret_cast<Bytef*>(data);
    state_.avail_out = static_cast<uInt>(size);
    while (state_.avail_out == size) {
      if (state_.avail_in == 0 && !refill()) {
        if (inside_member_) throw_damaged_file(file_->path(), "gzip data");
        break;
      }
      if (!inside_member_) {
        skip_padding();
        if (state_.avail_in == 0) continue;
        ::inflateReset(&state_);
      }
      inside_member_ = true;
      const int result = ::inflate(&state_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        inside_member_ = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        throw_damaged_file(file_->path(), "gzip data");
      }
    }
    return size - state_.avail_out;
  }

  std::uint64_t bytes_read() const override { return file_->bytes_read(); }

 private:
  /// Passes over zeros behind a member, which gzip and Python accept.
  void skip_padding() {
    for (; state_.avail_in > 0 && *state_.next_in == 0; --state_.avail_in) ++state_.next_in;
  }
  bool refill() {
    state_.next_in = reinterpret_cast<Bytef*>(input_.data());
    state_.avail_in = static_cast<uInt>(file_->read(input_.data(), input_.size()));
    return state_.avail_in > 0;
  }

  std::unique_ptr<PlainStream> file_;
  std::vector<char> input_;
  z_stream state_{};
  bool inside_member_ = true;
};

class ZstdStream : public TextStream {
 public:
  explicit ZstdStream(std::unique_ptr<PlainStream> file)
      : file_(std::move(file)),
        input_(kInputBuffer),
        state_(ZSTD_createDStream(), ZSTD_freeDStream) {
    constexpr int kLongestWindow = 31;
    MEGATRON_CHECK(state_ != nullptr && !ZSTD_isError(ZSTD_DCtx_setParameter(
                                            state_.get(), ZSTD_d_windowLogMax, kLongestWindow)),
                   "zstd cannot be initialized");
  }

  std::size_t read(char* data, std::size_t size) override {
    ZSTD_outBuffer out{data, size, 0};
    while (out.pos == 0) {
      if (in_.pos == in_.size) {
        in_ = {input_.data(), file_->read(input_.data(), input_.size()), 0};
        at_end_ = in_.size == 0;
      }
      if (at_end_ && !inside_frame_) break;
      const std::size_t result = ZSTD_decompressStream(state_.get(), &out, &in_);
      if (ZSTD_isError(result))
        throw_damaged_file(file_->path(),
                           std::string("zstd data (") + ZSTD_getErrorName(result) + ")");
      inside_frame_ = result != 0;
      if (at_end_ && inside_frame_ && out.pos == 0) throw_damaged_file(file_->path(), "zstd data");
    }
    return out.pos;
  }

  std::uint64_t bytes_read() const override { return file_->bytes_read(); }

 private:
  std::unique_ptr<PlainStream> file_;
  std::vector<char> input_;
  std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> state_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_frame_ = true, at_end_ = false;
};

}  // namespace

void TextStream::skip(std::uint64_t size) {
  std::vector<char> ignored(kInputBuffer);
  while (size > 0) {
    const std::size_t count = read(ignored.data(), std::min<std::uint64_t>(size, ignored.size()));
    if (count == 0) throw UserError({"an input became shorter", "", "start again"});
    size -= count;
  }
}

std::unique_ptr<TextStream> open_text(const fs::path& path, const StopEvent* stop) {
  auto file = std::make_unique<PlainStream>(path, stop);
  const std::string_view start = file->peek(kLongestSignature);
  if (start.starts_with("\x1f\x8b")) return std::make_unique<GzipStream>(std::move(file));
  if (is_zstd(start)) return std::make_unique<ZstdStream>(std::move(file));
  refuse_other_formats(path, start);
  return file;
}

}  // namespace megatron
