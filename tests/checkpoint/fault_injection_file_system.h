// A file system on which one call of a save fails. It counts calls, so that a test can let each of
// them fail in turn. A power loss takes what POSIX lets it take: any subset of the file contents
// and of the changed names that no fsync of the file or of its folder made durable.
#pragma once

#include <cerrno>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/base/files.h"

namespace megatron {

enum class Fault {
  none,
  kill,        ///< the process ends at this call; a write is done by half
  power_loss,  ///< as kill, then lose_power() with the subset of Options::loss_seed
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

/// Thrown where the process would have ended.
struct Killed {};

class FaultInjectionFileSystem : public FileSystem {
 public:
  using Path = std::filesystem::path;
  struct Options {
    Fault fault = Fault::none;
    std::size_t at = 0;  ///< index of the call
    bool can_exchange = true;
    double flip_at = 0;  ///< relative position of the flipped byte in the write, from 0 to 1
    std::uint64_t loss_seed = 0;  ///< of the subset that a power loss takes; 0: everything
  };
  struct Call {
    std::string name;
    Path path;
  };
  explicit FaultInjectionFileSystem(Options options) : options_(options) {}

  const std::vector<Call>& calls() const { return calls_; }

  /// The number of changes that a power loss can take: names, then contents of files.
  std::size_t num_unflushed() const { return names_.size() + dirty_.size(); }

  /// Simulates a power loss: reverts each of the num_unflushed() changes for which `is_lost` is
  /// true. A file that loses its content is empty afterwards, or keeps half of it.
  void lose_power(const std::function<bool(std::size_t)>& is_lost) {
    std::size_t index = names_.size();
    for (const Path& path : dirty_) {
      if (is_lost(index++) && std::filesystem::exists(path))
        std::filesystem::resize_file(path, index % 2 * std::filesystem::file_size(path) / 2);
    }
    while (!names_.empty()) {
      const NameChange change = names_.back();
      names_.pop_back();
      if (!change.is_reached_otherwise && is_lost(names_.size())) {
        undo(change);
      } else {
        keep(change);
      }
    }
    dirty_.clear();
  }

  int create(const Path& path) override {
    if (!enter("create", path)) return -1;
    const int descriptor = FileSystem::create(path);
    open_[descriptor] = path;
    dirty_.insert(path);
    names_.push_back({.kind = NameChange::create, .path = path});
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
    std::erase_if(names_,
                  [&](const NameChange& name) { return name.path.parent_path() == folder; });
    return 0;
  }

  int make_folder(const Path& folder) override {
    if (!enter("make_folder", folder)) return -1;
    const int result = FileSystem::make_folder(folder);
    if (result == 0) names_.push_back({.kind = NameChange::make_folder, .path = folder});
    return result;
  }

  int rename(const Path& from, const Path& to) override {
    if (!enter("rename", to)) return -1;
    NameChange change{.kind = NameChange::rename, .path = to, .from = from};
    if (std::filesystem::is_regular_file(to)) change.content = read_file(to);
    const int result = FileSystem::rename(from, to);
    if (result == 0) {
      move_marks(from, to);
      names_.push_back(std::move(change));
    }
    return result;
  }

  int link(const Path& from, const Path& to) override {
    if (!enter("link", to)) return -1;
    const int result = FileSystem::link(from, to);
    if (result == 0) names_.push_back({.kind = NameChange::create, .path = to});
    return result;
  }

  int exchange(const Path& a, const Path& b) override {
    if (!enter("exchange", b)) return -1;
    if (!options_.can_exchange) return fail(EINVAL);
    const int result = FileSystem::exchange(a, b);
    if (result == 0) {
      exchange_marks(a, b);
      names_.push_back({.kind = NameChange::exchange, .path = b, .from = a});
    }
    return result;
  }

  int remove(const Path& path) override {
    if (!enter("remove", path)) return -1;
    NameChange change{.kind = NameChange::remove, .path = path};
    if (std::filesystem::is_regular_file(path)) change.content = read_file(path);
    const int result = FileSystem::remove(path);
    if (result != 0) return result;
    dirty_.erase(path);
    const auto is_made_here = [&](const NameChange& name) {
      return name.path == path &&
             (name.kind == NameChange::create || name.kind == NameChange::make_folder);
    };
    if (std::erase_if(names_, is_made_here) == 0) names_.push_back(std::move(change));
    return result;
  }

  int preallocate(int descriptor, std::uint64_t) override {
    return enter("reserve", open_.at(descriptor)) ? 0 : -1;
  }

  std::size_t buffer_bytes() const override { return 512; }

 private:
  /// A change of a folder's entries that was not flushed yet.
  struct NameChange {
    enum Kind { create, make_folder, rename, exchange, remove } kind = create;
    Path path, from = {};                     ///< `from`: of rename and exchange
    std::optional<std::string> content = {};  ///< of the file that was replaced or removed
    /// The same file or folder survives under a later name.
    bool is_reached_otherwise = false;
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

  /// Counts the call; false, with errno, when it shall fail.
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
    std::mt19937_64 coin(options_.loss_seed);
    if (options_.fault == Fault::power_loss)
      lose_power([&](std::size_t) { return options_.loss_seed == 0 || coin() % 2 == 0; });
    throw Killed{};
  }

  ssize_t write_flipped(int descriptor, const void* data, std::size_t size) {
    std::string changed(static_cast<const char*>(data), size);
    const auto at = static_cast<std::size_t>(options_.flip_at * static_cast<double>(size - 1));
    changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
    return FileSystem::write(descriptor, changed.data(), size);
  }

  /// Reverts a change; later changes were reverted or kept before.
  void undo(const NameChange& change) {
    namespace fs = std::filesystem;
    switch (change.kind) {
      case NameChange::create:
      case NameChange::make_folder:
        fs::remove_all(change.path);
        return;
      case NameChange::rename:
        if (fs::exists(change.from)) {  // a later change gave that name to another file
          fs::remove_all(change.path);
        } else {
          FileSystem::rename(change.path, change.from);
          move_marks(change.path, change.from);
        }
        if (change.content) write_file(change.path, *change.content);
        return;
      case NameChange::exchange:
        FileSystem::exchange(change.from, change.path);
        exchange_marks(change.from, change.path);
        return;
      case NameChange::remove:
        if (fs::exists(change.path) || !fs::is_directory(change.path.parent_path())) return;
        if (change.content) {
          write_file(change.path, *change.content);
        } else {
          fs::create_directory(change.path);
        }
    }
  }

  /// Keeps a change: a file that survives under a new name does not vanish with its first name.
  void keep(const NameChange& change) {
    if (change.kind != NameChange::rename && change.kind != NameChange::exchange) return;
    for (NameChange& earlier : names_) {
      earlier.is_reached_otherwise |=
          earlier.path == change.path ||
          (change.kind == NameChange::exchange && earlier.path == change.from);
    }
  }

  static Path moved(const Path& path, const Path& from, const Path& to) {
    const std::string text = path.string(), old = from.string();
    const bool lies_there = text == old || text.starts_with(old + "/");
    return lies_there ? Path(to.string() + text.substr(old.size())) : path;
  }

  /// Replaces every path of the unflushed changes and of the open files by change(path).
  void change_marks(const std::function<Path(const Path&)>& change) {
    std::set<Path> dirty;
    for (const Path& path : dirty_) dirty.insert(change(path));
    dirty_ = std::move(dirty);
    for (auto& [descriptor, path] : open_) path = change(path);
    for (NameChange& name : names_) name.path = change(name.path);
  }
  void move_marks(const Path& from, const Path& to) {
    change_marks([&](const Path& path) { return moved(path, from, to); });
  }
  void exchange_marks(const Path& a, const Path& b) {
    change_marks([&](const Path& path) {
      const Path there = moved(path, a, b);
      return there == path ? moved(path, b, a) : there;
    });
  }

  Options options_;
  std::vector<Call> calls_;
  std::map<int, Path> open_;
  std::set<Path> dirty_;
  std::vector<NameChange> names_;
  PendingWrite pending_write_;
  bool is_dead_ = false;
};

}  // namespace megatron
