#include "megatron/datasets/index_cache.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <iostream>
#include <optional>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/datasets/leftovers.h"

namespace megatron {
namespace {

/// The files of one entry.
class EntryFiles {
 public:
  explicit EntryFiles(const IndexCacheEntry& entry)
      : prefix_((entry.folder /
                 (md5_hex(entry.description) + "-" + entry.class_name + "-" + entry.split + "-"))
                    .string()) {
    for (const std::string& name : entry.array_names) arrays.push_back(path(name + ".npy"));
  }
  fs::path path(const std::string& affix) const { return prefix_ + affix; }
  fs::path description() const { return path("description.txt"); }
  fs::path stamp() const { return path("stamp.json"); }

  std::vector<fs::path> arrays;

 private:
  std::string prefix_;
};

/// The arrays of an entry, or why there are none. `reason` is empty for an entry that does not
/// exist. `notes` says what is odd about arrays that are used.
struct Loaded {
  std::optional<IndexArrays> arrays = {};
  std::string reason = {};
  std::vector<std::string> notes = {};
};

std::optional<std::string> read_stamp(const EntryFiles& files) {
  std::error_code code;
  if (!fs::exists(files.stamp(), code)) return std::nullopt;
  return read_file(files.stamp());
}

/// Returns why an entry without a stamp cannot be used: file times may have millisecond resolution,
/// so a tie may hide a change.
std::optional<std::string> time_mismatch(const EntryFiles& files, const IndexSources& sources) {
  std::error_code code;
  const auto built = fs::last_write_time(files.description(), code);
  for (const fs::path& source : sources.files) {
    const auto changed = fs::last_write_time(source, code);
    if (code || changed >= built)
      return source.string() + " is as new as the index, or newer, and its contents have no stamp";
  }
  return std::nullopt;
}

/// Names the sources that are newer than an entry whose stamp fits them: their times say that the
/// index is stale, and their contents say that it is not.
std::vector<std::string> newer_sources(const EntryFiles& files, const IndexSources& sources) {
  std::vector<std::string> notes;
  std::error_code code;
  const auto built = fs::last_write_time(files.description(), code);
  if (code) return notes;
  for (const fs::path& source : sources.files) {
    const auto changed = fs::last_write_time(source, code);
    if (!code && changed > built)
      notes.push_back(source.string() +
                      " is newer than its cached sample order, which is kept because the contents "
                      "are the same: the file was touched or copied, or a clock was wrong");
  }
  return notes;
}

Loaded load_files(const EntryFiles& files, const IndexSources& sources,
                  const std::function<bool(const IndexArrays&)>& accept) {
  std::error_code code;
  // The description is written last and removed first.
  if (!fs::exists(files.description(), code)) return {};
  const std::optional<std::string> stamp = read_stamp(files);
  const std::optional<std::string> mismatch =
      stamp ? index_stamp_mismatch(*stamp, sources, files.arrays) : time_mismatch(files, sources);
  if (mismatch) return {.reason = *mismatch};
  IndexArrays arrays;
  for (const fs::path& path : files.arrays) arrays.push_back(NpyArray::load(path));
  if (!accept(arrays)) return {.reason = "its arrays do not fit the data"};
  // A builder may have replaced some of the arrays meanwhile.
  if (read_stamp(files) != stamp) return {.reason = "another process builds it again"};
  return {.arrays = std::move(arrays), .notes = newer_sources(files, sources)};
}

Loaded try_load(const EntryFiles& files, const IndexSources& sources,
                const std::function<bool(const IndexArrays&)>& accept) try {
  return load_files(files, sources, accept);
} catch (const UserError& error) {
  return {.reason = error.parts().problem()};
}

/// Writes to a temporary name, then renames, so that readers see a whole file or none.
void store(const fs::path& path, const std::function<void(const fs::path&)>& write) {
  static std::atomic<unsigned> counter{0};
  const fs::path temporary =
      path.string() + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(counter++);
  try {
    write(temporary);
    fs::rename(temporary, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

/// Replaces an entry. Without description and stamp, what a killed process leaves is not taken for
/// an index.
void store_entry(const IndexCacheEntry& entry, const EntryFiles& files, const IndexArrays& arrays) {
  fs::remove(files.description());
  fs::remove(files.stamp());
  for (std::size_t i = 0; i < arrays.size(); ++i)
    store(files.arrays[i], [&](const fs::path& path) { arrays[i].save(path); });
  write_file_atomically(files.stamp(), make_index_stamp(entry.sources, files.arrays));
  write_file_atomically(files.description(), entry.description);
}

std::vector<std::optional<FileStamp>> stamps_of(const IndexSources& sources) {
  std::vector<std::optional<FileStamp>> stamps;
  for (const fs::path& file : sources.files) stamps.push_back(file_stamp(file));
  return stamps;
}

/// Takes the lock of an entry and returns how long another process held it, in seconds.
double take_lock(const IndexCacheEntry& entry, const EntryFiles& files,
                 std::optional<FileLock>& lock) {
  megatron::create_directories(entry.folder);
  const auto start = std::chrono::steady_clock::now();
  static std::atomic<bool> has_told = false;
  if (FileLock::is_held(files.path("lock")) && !has_told.exchange(true))
    std::cerr << "note: waiting for another process that builds " + files.path("*").string() + "\n";
  lock.emplace(files.path("lock"));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

IndexArrays load_or_build(const IndexCacheEntry& entry, const std::function<IndexArrays()>& build,
                          const std::function<bool(const IndexArrays&)>& accept,
                          std::vector<std::string>& warnings) {
  if (entry.folder.empty()) return build();
  const EntryFiles files(entry);
  const auto take = [&](Loaded& loaded) {
    warnings.insert(warnings.end(), loaded.notes.begin(), loaded.notes.end());
    return *std::move(loaded.arrays);
  };
  Loaded found = try_load(files, entry.sources, accept);
  if (found.arrays) return take(found);
  const auto warn_unwritable = [&](const std::string& reason) {
    warnings.push_back("the sample order is kept in memory because " + entry.folder.string() +
                       " cannot be written (" + reason +
                       "); choose another folder with --data-cache-path");
  };
  const std::string name =
      "the cached " + entry.split + " sample order " + files.path("*").string() + " ";
  if (!found.reason.empty()) warnings.push_back(name + "is built again: " + found.reason);

  constexpr double kLongWaitSeconds = 5;
  double waited_s = 0;
  std::optional<FileLock> lock;
  try {
    waited_s = take_lock(entry, files, lock);
  } catch (const UserError& error) {
    warn_unwritable(error.parts().got);
    return build();
  }
  found = try_load(files, entry.sources, accept);
  if (found.arrays) {
    if (waited_s > kLongWaitSeconds)
      warnings.push_back(name + format("was built by another process in %.0f s", waited_s));
    return take(found);
  }
  const auto before = stamps_of(entry.sources);
  IndexArrays arrays = build();
  if (stamps_of(entry.sources) != before) {
    warnings.push_back(name + "is not kept: the data were replaced while it was built");
    return arrays;
  }
  try {
    const std::string start = files.path("").filename().string();
    remove_leftovers(entry.folder, [&](const std::string& name) {  // of killed builders
      return name.starts_with(start) && name.find(".tmp.") != std::string::npos;
    });
    store_entry(entry, files, arrays);
  } catch (const UserError& error) {
    warn_unwritable(error.parts().got);
  } catch (const fs::filesystem_error& error) {
    warn_unwritable(error.code().message());
  }
  found = try_load(files, entry.sources, accept);
  return found.arrays ? *std::move(found.arrays) : arrays;
}

}  // namespace megatron
