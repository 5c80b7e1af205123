#include "megatron/checkpoint/collect_garbage.h"

#include <algorithm>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/stale_temporaries.h"
#include "megatron/config/byte_count.h"

namespace megatron {
namespace {

std::uint64_t bytes_freed_by(const fs::path& path) {
  if (!fs::is_directory(path)) return fs::file_size(path);
  std::uint64_t bytes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file() && entry.hard_link_count() == 1) bytes += entry.file_size();
  return bytes;
}

/// Returns what interrupted saves left, each with its size, but not a folder that was moved aside
/// and gets its name back.
std::map<fs::path, std::uint64_t> leftovers(const fs::path& root) {
  std::map<fs::path, std::uint64_t> found;
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    if (!is_temporary_name(name)) continue;
    const TemporaryName temporary = *parse_temporary_name(name);
    if (!temporary.is_backup || fs::exists(root / temporary.base))
      found.emplace(entry.path(), bytes_freed_by(entry.path()));
  }
  return found;
}

/// Returns the folders of iterations before the `keep` newest ones and before the current one.
std::vector<fs::path> old_iterations(const fs::path& root, std::int64_t keep) {
  std::vector<std::int64_t> iterations = committed_iterations(root);
  const auto num_old = static_cast<std::int64_t>(iterations.size()) - keep;
  iterations.resize(static_cast<std::size_t>(std::max<std::int64_t>(num_old, 0)));
  if (const auto tracker = read_tracker(root); tracker && tracker->iteration)
    std::erase_if(iterations, [&](std::int64_t one) { return one >= *tracker->iteration; });
  std::vector<fs::path> folders;
  for (const std::int64_t one : iterations)
    if (const fs::path folder = root / iteration_folder(one);
        fs::exists(folder) && !fs::is_symlink(folder))  // else it is still aside
      folders.push_back(folder);
  return folders;
}

}  // namespace

void collect_garbage(const fs::path& root, const GarbageOptions& options, std::ostream& out) {
  if (!fs::is_directory(root) || all_checkpoint_folders(root).empty())
    throw UserError({root.string() + ": there is no checkpoint", "",
                     "name the folder that a run has as --save"});
  const FolderLock lock(root);
  std::uint64_t total = 0;
  const auto report = [&](const fs::path& path, std::uint64_t bytes) {
    total += bytes;
    out << (options.is_dry_run ? "would remove " : "removed ") << path.string() << " ("
        << byte_size_text(static_cast<double>(bytes)) << ")\n";
  };
  const std::map<fs::path, std::uint64_t> sizes = leftovers(root);
  if (!options.is_dry_run) remove_stale_temporaries(root, lock.is_enforced());
  for (const auto& [path, bytes] : sizes)
    if (options.is_dry_run || !fs::exists(path)) report(path, bytes);
  if (options.keep)
    for (const fs::path& folder : old_iterations(root, *options.keep)) {
      const std::uint64_t bytes = bytes_freed_by(folder);
      if (!options.is_dry_run) remove_folder_atomically(folder);
      report(folder, bytes);
    }
  out << (options.is_dry_run ? "would free " : "freed ")
      << byte_size_text(static_cast<double>(total)) << "\n";
}

}  // namespace megatron
