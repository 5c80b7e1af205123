#include "megatron/datasets/index_cache.h"

#include <unistd.h>

#include <atomic>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/base/md5.h"

namespace megatron {
namespace {

fs::path path_to(const IndexCacheEntry& entry, const std::string& affix) {
  return entry.folder /
         (md5_hex(entry.description) + "-" + entry.class_name + "-" + entry.split + "-" + affix);
}

bool is_current(const IndexCacheEntry& entry) {
  std::error_code code;
  const auto built = fs::last_write_time(path_to(entry, "description.txt"), code);
  if (code) return false;
  for (const fs::path& source : entry.sources) {
    const auto changed = fs::last_write_time(source, code);
    if (code || changed >= built)
      return false;  // file times may have millisecond resolution, so a tie may hide a change
  }
  return true;
}

std::optional<IndexArrays> try_load(const IndexCacheEntry& entry,
                                    const std::function<bool(const IndexArrays&)>& accept) {
  if (!is_current(entry)) return std::nullopt;
  IndexArrays arrays;
  try {
    for (const std::string& name : entry.array_names)
      arrays.push_back(NpyArray::load(path_to(entry, name + ".npy")));
  } catch (const UserError&) {
    return std::nullopt;  // the entry is missing or damaged and will be rebuilt
  }
  if (!accept(arrays)) return std::nullopt;
  return arrays;
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

void store_entry(const IndexCacheEntry& entry, const IndexArrays& arrays) {
  for (std::size_t i = 0; i < arrays.size(); ++i)
    store(path_to(entry, entry.array_names[i] + ".npy"),
          [&](const fs::path& path) { arrays[i].save(path); });
  store(path_to(entry, "description.txt"), [&](const fs::path& path) {
    FileWriter writer(path);
    writer.write(entry.description);
    writer.close();
  });
}

}  // namespace

IndexArrays load_or_build(const IndexCacheEntry& entry, const std::function<IndexArrays()>& build,
                          const std::function<bool(const IndexArrays&)>& accept,
                          std::vector<std::string>& warnings) {
  if (entry.folder.empty()) return build();
  if (auto arrays = try_load(entry, accept)) return *std::move(arrays);

  const auto warn = [&](const std::string& reason) {
    warnings.push_back("the sample order is kept in memory because " + entry.folder.string() +
                       " cannot be written (" + reason +
                       "); choose another folder with --data-cache-path");
  };
  std::optional<FileLock> lock;
  try {
    megatron::create_directories(entry.folder);
    lock.emplace(path_to(entry, "lock"));
  } catch (const UserError& error) {
    warn(error.parts().got);
    return build();
  }
  if (auto arrays = try_load(entry, accept)) return *std::move(arrays);
  IndexArrays arrays = build();
  try {
    store_entry(entry, arrays);
  } catch (const UserError& error) {
    warn(error.parts().got);
  } catch (const fs::filesystem_error& error) {
    warn(error.code().message());
  }
  if (auto mapped = try_load(entry, accept)) return *std::move(mapped);
  return arrays;
}

}  // namespace megatron
