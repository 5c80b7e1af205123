#include "megatron/base/offload_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/thread_limit.h"

namespace megatron {
namespace {

std::uint64_t round_up(std::uint64_t bytes, std::uint64_t multiple) {
  return (bytes + multiple - 1) / multiple * multiple;
}

/// Returns the alignment in memory that direct transfers of a file need; 0 if the file system says
/// that it has none.
std::size_t direct_memory_alignment(int descriptor) {
#ifdef STATX_DIOALIGN
  struct statx status {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &status) == 0 &&
      (status.stx_mask & STATX_DIOALIGN) != 0) {
    const bool fits = status.stx_dio_offset_align != 0 &&
                      OffloadFile::kAlignment % status.stx_dio_offset_align == 0 &&
                      status.stx_dio_mem_align != 0 &&
                      OffloadFile::kAlignment % status.stx_dio_mem_align == 0;
    return fits ? status.stx_dio_mem_align : 0;
  }
#endif
  return OffloadFile::kAlignment;
}

bool lies_in_memory(int descriptor) {
  struct statfs status {};
  if (::fstatfs(descriptor, &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

/// Makes a file-size limit (SIGXFSZ) an error of write(), and leaves signals to the other threads.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
}

}  // namespace

int OffloadFileCalls::open(const std::filesystem::path& path, int flags) {
  return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600);
}

ssize_t OffloadFileCalls::read(int descriptor, void* data, std::size_t size, std::uint64_t offset) {
  return ::pread(descriptor, data, size, static_cast<off_t>(offset));
}

ssize_t OffloadFileCalls::write(int descriptor, const void* data, std::size_t size,
                                std::uint64_t offset) {
  return ::pwrite(descriptor, data, size, static_cast<off_t>(offset));
}

/// A transfer. `phase`, `owner` and `error` are guarded by the mutex.
struct OffloadTransfer::State {
  enum class Phase { queued, running, done };

  bool is_write = false;
  std::byte* data = nullptr;  ///< only read by a write
  std::size_t size = 0;
  std::uint64_t offset = 0;

  std::mutex mutex = {};
  std::condition_variable changed = {};
  Phase phase = Phase::queued;
  std::shared_ptr<const void> owner = {};
  std::optional<UserError::Parts> error = {};

  /// Returns false if the transfer was cancelled.
  bool begin() {
    const std::lock_guard lock(mutex);
    if (phase != Phase::queued) return false;
    phase = Phase::running;
    return true;
  }

  void finish(std::optional<UserError::Parts> cause) {
    std::shared_ptr<const void> dropped;
    {
      const std::lock_guard lock(mutex);
      dropped = std::move(owner);
    }
    dropped.reset();  // before waiters continue, who may count on the memory
    const std::lock_guard lock(mutex);
    phase = Phase::done;
    error = std::move(cause);
    changed.notify_all();
  }
};

void OffloadTransfer::wait() const {
  if (state_ == nullptr) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [this] { return state_->phase == State::Phase::done; });
  if (state_->error) throw UserError(*state_->error);
}

bool OffloadTransfer::cancel() const {
  if (state_ == nullptr || !state_->begin()) return false;
  state_->finish(std::nullopt);
  return true;
}

/// Aligned memory of one thread, through which data pass that are not aligned in memory.
struct OffloadFile::Buffer {
  Buffer()
      : data(static_cast<std::byte*>(std::aligned_alloc(kAlignment, kPieceBytes)), &std::free) {
    if (data == nullptr) throw std::bad_alloc();
  }
  std::unique_ptr<std::byte, void (*)(void*)> data;
};

OffloadFile::OffloadFile(Options options)
    : options_(std::move(options)),
      calls_(options_.calls == nullptr ? system_calls_ : *options_.calls) {
  open_file();
  try {
    for (int thread = 0; thread < std::max(1, options_.num_threads); ++thread)
      threads_.emplace_back([this, buffer = std::make_unique<Buffer>()] { run_thread(*buffer); });
  } catch (const std::system_error& error) {
    stop();
    throw thread_error("a thread of the offload folder " + options_.folder.string(), error);
  } catch (...) {
    stop();
    throw;
  }
}

OffloadFile::~OffloadFile() { stop(); }

void OffloadFile::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  for (const auto& transfer : queue_)  // threads that are stopped leave it as it is
    if (transfer->begin()) transfer->finish(std::nullopt);
}

void OffloadFile::open_file() {
  struct stat status {};
  if (::stat(options_.folder.c_str(), &status) != 0)
    throw UserError({"the offload folder " + options_.folder.string(),
                     std::string("cannot be used: ") + std::strerror(errno),
                     "create it, or name another folder"});
  if (!S_ISDIR(status.st_mode))
    throw UserError({"the offload folder " + options_.folder.string(), "is a file, not a folder",
                     "name a folder on a local disk"});
  const auto id =
      reinterpret_cast<std::uintptr_t>(this);  // distinct among the threads of a process
  const std::filesystem::path path = options_.folder / (".offload-" + std::to_string(::getpid()) +
                                                        "-" + std::to_string(id) + ".tmp");
  descriptor_ = Descriptor(calls_.open(path, O_EXCL));
  if (!descriptor_.is_open()) {
    const bool is_forbidden = errno == EACCES || errno == EPERM || errno == EROFS;
    throw UserError({"the offload folder " + options_.folder.string(),
                     "no file can be created in it: " + std::string(std::strerror(errno)),
                     is_forbidden ? "check the permissions, or choose another folder"
                                  : "name a folder on a local disk"});
  }
  if (options_.allow_direct) memory_alignment_ = direct_memory_alignment(descriptor_.number());
  if (options_.allow_direct && memory_alignment_ != 0)
    direct_ = Descriptor(calls_.open(path, O_DIRECT));
  ::unlink(path.c_str());  // the descriptors keep the file until the process ends
  is_in_memory_ = lies_in_memory(descriptor_.number());
  if (!is_direct()) return;
  const Buffer probe;
  std::memset(probe.data.get(), 0, kAlignment);
  if (calls_.write(direct_.number(), probe.data.get(), kAlignment, 0) < 0 && errno == EINVAL)
    direct_.close();  // a file system that opens with O_DIRECT and then refuses it
}

Extent OffloadFile::allocate(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return extents_.allocate(bytes);
}

void OffloadFile::free(const Extent& extent) {
  const std::lock_guard lock(mutex_);
  extents_.free(extent);
}

std::uint64_t OffloadFile::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return extents_.bytes_in_use();
}

OffloadTransfer OffloadFile::write(std::span<const std::byte> bytes, const Extent& extent,
                                   std::shared_ptr<const void> owner) {
  MEGATRON_CHECK(bytes.size() <= extent.bytes, bytes.size(), " bytes for an extent of ",
                 extent.bytes);
  return submit(true, const_cast<std::byte*>(bytes.data()), bytes.size(), extent.offset,
                std::move(owner));
}

OffloadTransfer OffloadFile::read(const Extent& extent, std::span<std::byte> bytes,
                                  std::shared_ptr<const void> owner) {
  MEGATRON_CHECK(bytes.size() <= extent.bytes, bytes.size(), " bytes of an extent of ",
                 extent.bytes);
  return submit(false, bytes.data(), bytes.size(), extent.offset, std::move(owner));
}

OffloadTransfer OffloadFile::submit(bool is_write, std::byte* data, std::size_t size,
                                    std::uint64_t offset, std::shared_ptr<const void> owner) {
  auto state = std::make_shared<OffloadTransfer::State>();
  state->is_write = is_write;
  state->data = data;
  state->size = size;
  state->offset = offset;
  state->owner = std::move(owner);
  OffloadTransfer transfer;
  transfer.state_ = state;
  std::unique_lock lock(mutex_);
  if (is_write) {  // whoever reads has its memory already
    space_.wait(lock, [&] {
      return bytes_in_flight_ == 0 || bytes_in_flight_ + size <= options_.max_bytes_in_flight;
    });
    bytes_in_flight_ += size;
  }
  queue_.push_back(std::move(state));
  work_.notify_one();
  return transfer;
}

void OffloadFile::run_thread(Buffer& buffer) {
  block_signals();
  for (;;) {
    std::shared_ptr<OffloadTransfer::State> transfer;
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stopped_ || !queue_.empty(); });
      if (stopped_) return;
      transfer = std::move(queue_.front());
      queue_.pop_front();
    }
    if (transfer->begin()) run(*transfer, buffer);
    const std::lock_guard lock(mutex_);
    if (transfer->is_write) bytes_in_flight_ -= transfer->size;
    space_.notify_all();
  }
}

void OffloadFile::run(OffloadTransfer::State& transfer, Buffer& buffer) {
  std::optional<UserError::Parts> error;
  try {
    for (std::size_t begin = 0; begin < transfer.size; begin += kPieceBytes)
      move_piece(transfer, begin, std::min(kPieceBytes, transfer.size - begin), buffer);
  } catch (const UserError& failure) {
    error = failure.parts();
  } catch (const std::exception& failure) {
    error = {"a copy to or from the offload folder " + options_.folder.string(), failure.what(),
             "report this"};
  }
  transfer.finish(std::move(error));
}

void OffloadFile::move_piece(OffloadTransfer::State& transfer, std::size_t begin, std::size_t size,
                             Buffer& buffer) {
  std::byte* data = transfer.data + begin;
  const std::uint64_t offset = transfer.offset + begin;
  const bool is_aligned =
      size % kAlignment == 0 && reinterpret_cast<std::uintptr_t>(data) % memory_alignment_ == 0;
  if (!is_direct() || is_aligned) return move_bytes(transfer.is_write, data, size, offset);
  const std::size_t padded = round_up(size, kAlignment);
  if (transfer.is_write) {
    std::memcpy(buffer.data.get(), data, size);
    std::memset(buffer.data.get() + size, 0, padded - size);
  }
  move_bytes(transfer.is_write, buffer.data.get(), padded, offset);
  if (!transfer.is_write) std::memcpy(data, buffer.data.get(), size);
}

void OffloadFile::move_bytes(bool is_write, std::byte* data, std::size_t size,
                             std::uint64_t offset) {
  const char* const action =
      is_write ? "write to the offload folder" : "read from the offload folder";
  const std::uint64_t first = offset;
  const std::size_t total = size;
  while (size > 0) {
    const ssize_t count = is_write ? calls_.write(file_descriptor(), data, size, offset)
                                   : calls_.read(file_descriptor(), data, size, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_file_error(action, options_.folder, errno);
    // A full disk may cut a write anywhere, and a direct one must continue at an aligned offset.
    std::size_t moved = static_cast<std::size_t>(count);
    if (is_direct()) moved -= moved % kAlignment;
    if (moved == 0) throw_file_error(action, options_.folder, is_write ? ENOSPC : EIO);
    data += moved;
    size -= moved;
    offset += moved;
  }
  if (is_direct()) return;
  // Pages that are not on the disk cannot be dropped from the page cache. What the disk refuses is
  // only known here; file systems that do not know the call keep their pages.
  if (is_write &&
      ::sync_file_range(
          descriptor_.number(), static_cast<off64_t>(first), static_cast<off64_t>(total),
          SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) != 0 &&
      (errno == EIO || errno == ENOSPC || errno == EDQUOT))
    throw_file_error(action, options_.folder, errno);
  ::posix_fadvise(descriptor_.number(), static_cast<off_t>(first), static_cast<off_t>(total),
                  POSIX_FADV_DONTNEED);
}

}  // namespace megatron
