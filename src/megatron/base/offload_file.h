// A file that stands for memory: bytes that are not needed now are written to it and read back
// later. Copies run on threads of the file's own, directly between memory and disk where the file
// system allows that (O_DIRECT), because buffered pages of a file count as the process's memory.
//
//   OffloadFile file({.folder = "/scratch"});
//   const Extent extent = file.allocate(bytes.size());
//   OffloadTransfer write = file.write(bytes, extent);  // returns at once
//   write.wait();                                       // bytes may now be freed
//   file.read(extent, bytes).wait();
//   file.free(extent);
//
// The file has no name, so nothing of it is left when the process ends, however it ends.
#pragma once

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "megatron/base/descriptor.h"
#include "megatron/base/extent_allocator.h"

namespace megatron {

/// The system calls of an OffloadFile, which return what POSIX returns. Tests derive from this
/// class to inject faults.
class OffloadFileCalls {
 public:
  virtual ~OffloadFileCalls() = default;
  /// Opens a new file for reading and writing; `flags` are added.
  virtual int open(const std::filesystem::path& path, int flags);
  virtual ssize_t read(int descriptor, void* data, std::size_t size, std::uint64_t offset);
  virtual ssize_t write(int descriptor, const void* data, std::size_t size, std::uint64_t offset);
};

/// A copy between memory and an OffloadFile. Copies of this object are the same transfer. A default
/// transfer is complete.
class OffloadTransfer {
 public:
  OffloadTransfer() = default;
  /// Blocks until the transfer is complete. Throws a UserError that names the folder, the operation
  /// and a fix if it failed, each time it is called.
  void wait() const;
  /// Drops the transfer if it has not begun, which completes it, and returns whether it did.
  bool cancel() const;

 private:
  friend class OffloadFile;
  struct State;
  std::shared_ptr<State> state_;
};

class OffloadFile {
 public:
  struct Options {
    std::filesystem::path folder;
    int num_threads = 2;  ///< two threads reach the bandwidth of a local disk
    /// The largest number of bytes of writes that are queued or running. write() blocks while there
    /// are more, except for a single larger one.
    std::uint64_t max_bytes_in_flight = std::uint64_t{256} << 20;
    bool allow_direct = true;           ///< false: as if the file system had no O_DIRECT
    OffloadFileCalls* calls = nullptr;  ///< null: the system's; must outlive the file
  };

  /// Offsets of extents are multiples of this, and so are their sizes.
  static constexpr std::uint64_t kAlignment = 4096;
  /// Transfers are cut into pieces of this many bytes. On a local disk larger ones are no faster.
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

  /// Throws a UserError if the folder does not exist or is no folder, if no file can be made in it,
  /// or if a thread cannot start.
  explicit OffloadFile(Options options);
  OffloadFile(const OffloadFile&) = delete;
  OffloadFile& operator=(const OffloadFile&) = delete;
  /// Cancels the transfers that have not begun and waits for the others.
  ~OffloadFile();

  /// Returns an extent of at least `bytes` bytes. The functions of this class are thread-safe.
  Extent allocate(std::uint64_t bytes);
  /// Frees an extent. All its transfers must be complete.
  void free(const Extent& extent);

  /// Starts writing `bytes` to the beginning of `extent`. `owner` keeps the bytes alive and is
  /// dropped, on another thread, when the transfer is complete; without one the caller keeps them.
  OffloadTransfer write(std::span<const std::byte> bytes, const Extent& extent,
                        std::shared_ptr<const void> owner = nullptr);
  /// Starts reading the beginning of `extent`, which must have been written, into `bytes`.
  OffloadTransfer read(const Extent& extent, std::span<std::byte> bytes,
                       std::shared_ptr<const void> owner = nullptr);

  const std::filesystem::path& folder() const { return options_.folder; }
  /// Returns whether transfers bypass the page cache.
  bool is_direct() const { return direct_.is_open(); }
  /// Returns whether the folder is itself in memory (tmpfs), so that nothing is gained.
  bool is_in_memory() const { return is_in_memory_; }
  std::uint64_t bytes_in_use() const;

 private:
  struct Buffer;
  void open_file();
  OffloadTransfer submit(bool is_write, std::byte* data, std::size_t size, std::uint64_t offset,
                         std::shared_ptr<const void> owner);
  void run_thread(Buffer& buffer);
  /// Drops what has not begun and ends the threads.
  void stop() noexcept;
  void run(OffloadTransfer::State& transfer, Buffer& buffer);
  void move_piece(OffloadTransfer::State& transfer, std::size_t begin, std::size_t size,
                  Buffer& buffer);
  void move_bytes(bool is_write, std::byte* data, std::size_t size, std::uint64_t offset);
  /// Returns the descriptor of transfers.
  int file_descriptor() const { return is_direct() ? direct_.number() : descriptor_.number(); }

  const Options options_;
  OffloadFileCalls system_calls_;
  OffloadFileCalls& calls_;
  Descriptor descriptor_, direct_;    ///< of the same file; direct_ is not open: no O_DIRECT
  std::size_t memory_alignment_ = 1;  ///< of the memory of a direct transfer
  bool is_in_memory_ = false;

  mutable std::mutex mutex_;
  std::condition_variable work_, space_;
  ExtentAllocator extents_{kAlignment};
  std::deque<std::shared_ptr<OffloadTransfer::State>> queue_;
  std::uint64_t bytes_in_flight_ = 0;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace megatron
