// A file system on which one call of a save fails. It counts calls, so that a test can let each of
// them fail in turn.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"

namespace megatron {

enum class Fault {
  none,
  kill,        ///< the process ends at this call; a write is done by half
  power_loss,  ///< as kill, and everything that was not flushed is lost: data of files, names in
               ///< folders
  no_space,    ///< this call fails with ENOSPC
  full_disk,   ///< from this call on every create, write, make_folder and reserve fails with ENOSPC
  quota,       ///< this call fails with EDQUOT
  io_error,    ///< this call fails with EIO
  dead_disk,   ///< every call from this one on fails with EIO
  truncate,    ///< half of a write is lost without an error
  flip,        ///< one bit of a write changes without an error
  short_write,   ///< half of a write is done; the return value says so
  interruption,  ///< this write fails with EINTR
};

/// Thrown at the call at which the process ends.
struct Killed {};

class FaultInjectionFileSystem : public FileSystem {
 public:
  using Path = std::filesystem::path;
  struct Options {
    Fault fault = Fault::none;
    std::size_t at = 0;  ///< index of the call
    bool can_exchange = true;
    double flip_at = 0;  ///< relative position of the flipped byte in the write, from 0 to 1
  };
  struct Call {
    std::string name;
    Path path;
  };
  explicit FaultInjectionFileSystem(Options options) : options_(options) {}

  const std::vector<Call>& calls() const { return calls_; }

  int create(const Path& path) override {
    if (!enter("create", path)) return -1;
    const int descriptor = FileSystem::create(path);
    open_[descriptor] = path;
    dirty_.insert(path);
    unflushed_names_.push_back({path.parent_path(), [path] { FileSystem().remove(path); }});
    return descriptor;
  }

  ssize_t write(int descriptor, const void* data, std::size_t size) override {
    pending_write_ = {descriptor, data, size};
    if (!enter("write", open_.at(descriptor))) return -1;
    dirty_.insert(open_.at(descriptor));
    if (!is_here()) return FileSystem::write(descriptor, data, size);
    if (options_.fault == Fault::flip) return write_flipped(descriptor, data, size);
    if (options_.fault != Fault::truncate && options_.fault != Fault::short_write)
      return FileSystem::write(descriptor, data, size);
    const std::size_t half = (size + 1) / 2;
    FileSystem::write(descriptor, data, options_.fault == Fault::truncate ? size / 2 : half);
    return static_cast<ssize_t>(options_.fault == Fault::truncate ? size : half);
  }

  int sync(int descriptor) override {
    if (!enter("sync", open_.at(descriptor))) return -1;
    dirty_.erase(open_.at(descriptor));
    return 0;
  }

  int close(int descriptor) override {
    const Path path = open_.at(descriptor);
    open_.erase(descriptor);
    FileSystem::close(descriptor);
    return enter("close", path) ? 0 : -1;
  }

  int sync_folder(const Path& folder) override {
    if (!enter("sync_folder", folder)) return -1;
    std::erase_if(unflushed_names_, [&](const Name& name) { return name.folder == folder; });
    return 0;
  }

  int make_folder(const Path& folder) override {
    if (!enter("make_folder", folder)) return -1;
    unflushed_names_.push_back(
        {folder.parent_path(), [folder] { std::filesystem::remove_all(folder); }});
    return FileSystem::make_folder(folder);
  }

  int rename(const Path& from, const Path& to) override {
    if (!enter("rename", to)) return -1;
    move_marks(from, to);
    unflushed_names_.push_back({to.parent_path(), [from, to] { FileSystem().rename(to, from); }});
    return FileSystem::rename(from, to);
  }

  int exchange(const Path& a, const Path& b) override {
    if (!enter("exchange", b)) return -1;
    if (!options_.can_exchange) return fail(EINVAL);
    unflushed_names_.push_back({a.parent_path(), [a, b] { FileSystem().exchange(a, b); }});
    return FileSystem::exchange(a, b);
  }

  int remove(const Path& path) override {
    if (!enter("remove", path)) return -1;
    dirty_.erase(path);
    return FileSystem::remove(path);
  }

  int preallocate(int descriptor, std::uint64_t) override {
    return enter("reserve", open_.at(descriptor)) ? 0 : -1;
  }

  std::size_t buffer_bytes() const override { return 512; }

 private:
  struct Name {
    Path folder;
    std::function<void()> forget;
  };
  struct PendingWrite {
    int descriptor = -1;
    const void* data = nullptr;
    std::size_t size = 0;
  };

  static int fail(int code) {
    errno = code;
    return -1;
  }
  bool is_here() const { return calls_.size() == options_.at + 1; }
  bool is_past() const { return calls_.size() > options_.at; }

  /// Counts the call. Returns false and sets errno when the call must fail.
  bool enter(const std::string& name, const Path& path) {
    if (is_dead_) return fail(EIO) == 0;
    calls_.push_back({name, path});
    const bool takes_space =
        name == "create" || name == "write" || name == "make_folder" || name == "reserve";
    switch (options_.fault) {
      case Fault::kill:
      case Fault::power_loss:
        if (is_here()) end_process(name);
        return true;
      case Fault::no_space:
        return !is_here() || fail(ENOSPC) == 0;
      case Fault::quota:
        return !is_here() || fail(EDQUOT) == 0;
      case Fault::full_disk:
        return !(is_past() && takes_space) || fail(ENOSPC) == 0;
      case Fault::io_error:
        return !is_here() || fail(EIO) == 0;
      case Fault::dead_disk:
        return !is_past() || fail(EIO) == 0;
      case Fault::interruption:
        return !(is_here() && name == "write") || fail(EINTR) == 0;
      default:
        return true;
    }
  }

  [[noreturn]] void end_process(const std::string& name) {
    if (name == "write")
      FileSystem::write(pending_write_.descriptor, pending_write_.data, pending_write_.size / 2);
    is_dead_ = true;
    if (options_.fault == Fault::power_loss) {
      for (const Path& path : dirty_) std::filesystem::resize_file(path, 0);
      for (auto name_of = unflushed_names_.rbegin(); name_of != unflushed_names_.rend(); ++name_of)
        name_of->forget();
    }
    throw Killed{};
  }

  ssize_t write_flipped(int descriptor, const void* data, std::size_t size) {
    std::string changed(static_cast<const char*>(data), size);
    const auto at = static_cast<std::size_t>(options_.flip_at * static_cast<double>(size - 1));
    changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
    return FileSystem::write(descriptor, changed.data(), size);
  }

  /// Renames the unflushed files below `from` to lie below `to`.
  void move_marks(const Path& from, const Path& to) {
    std::set<Path> moved;
    for (const Path& path : dirty_) {
      const std::string text = path.string(), old = from.string();
      const bool lies_there = text == old || text.starts_with(old + "/");
      moved.insert(lies_there ? Path(to.string() + text.substr(old.size())) : path);
    }
    dirty_ = std::move(moved);
  }

  Options options_;
  std::vector<Call> calls_;
  std::map<int, Path> open_;
  std::set<Path> dirty_;
  std::vector<Name> unflushed_names_;
  PendingWrite pending_write_;
  bool is_dead_ = false;
};

}  // namespace megatron
