#include "megatron/checkpoint/checkpoint_root.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/words.h"
#include "megatron/checkpoint/folder_lock.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/stale_temporaries.h"

namespace megatron {
namespace {

bool is_committed(const fs::path& folder) { return fs::exists(folder / kManifestFile); }

/// Returns root/`name`, or the folder to which an interrupted replacement moved it; nullopt when
/// neither is committed.
std::optional<fs::path> committed_folder(const fs::path& root, const std::string& name) {
  if (is_committed(root / name)) return root / name;
  const auto backup = find_backup(root, name);
  return backup && is_committed(*backup) ? backup : std::nullopt;
}

std::optional<std::int64_t> number(std::string_view text) {
  const auto value = exact_number<std::int64_t>(text);
  return value.value_or(-1) < 0 ? std::nullopt : value;
}

std::string list_of(const std::vector<std::int64_t>& iterations) {
  return iterations.empty() ? "none" : joined_text(iterations);
}

fs::path require_committed(const fs::path& root, const std::string& name,
                           const std::string& wanted_by) {
  if (const auto folder = committed_folder(root, name)) return *folder;
  throw UserError({wanted_by + ": there is no complete checkpoint " + (root / name).string(),
                   "complete ones: " + list_of(committed_iterations(root)),
                   "choose one of them with --ckpt-step"});
}

}  // namespace

std::string iteration_folder(std::int64_t iteration) {
  return format("iter_%07lld", static_cast<long long>(iteration));
}

std::optional<TrackerContent> read_tracker(const std::filesystem::path& root) {
  const fs::path path = root / kTrackerFile;
  if (!fs::exists(path)) return std::nullopt;
  const std::string text = trim(read_file(path));
  if (text == kReleaseFolder) return TrackerContent{};
  const auto iteration = number(text);
  if (!iteration) {
    throw UserError({path.string() + " must hold an iteration or the word release",
                     text.empty() ? "the file is empty" : "'" + text.substr(0, 60) + "'",
                     "write the iteration to load into it, or give --ckpt-step"});
  }
  return TrackerContent{iteration};
}

std::vector<std::int64_t> committed_iterations(const std::filesystem::path& root) {
  std::vector<std::int64_t> iterations;
  for (const auto& entry : fs::directory_iterator(root)) {
    std::string name = entry.path().filename().string();
    if (const auto temporary = parse_temporary_name(name);
        temporary && temporary->is_backup && !fs::exists(root / temporary->base))
      name = temporary->base;
    const auto iteration = name.starts_with("iter_") ? number(name.substr(5)) : std::nullopt;
    if (iteration && iteration_folder(*iteration) == name && is_committed(entry.path()))
      iterations.push_back(*iteration);
  }
  std::ranges::sort(iterations);
  return iterations;
}

std::optional<std::filesystem::path> find_checkpoint_folder(const std::filesystem::path& root,
                                                            std::optional<std::int64_t> step) {
  if (is_committed(root)) return root;
  const std::vector<std::int64_t> committed = committed_iterations(root);
  if (step) {
    if (!fs::exists(root / kTrackerFile) && committed.empty()) return std::nullopt;
    return require_committed(root, iteration_folder(*step), "--ckpt-step " + std::to_string(*step));
  }
  const auto tracked = read_tracker(root);
  if (tracked)
    return require_committed(
        root, tracked->iteration ? iteration_folder(*tracked->iteration) : kReleaseFolder,
        (root / kTrackerFile).string());
  return committed_folder(root,
                          committed.empty() ? kReleaseFolder : iteration_folder(committed.back()));
}

void require_empty_folder(const std::filesystem::path& folder) {
  if (!fs::exists(folder)) return;
  std::string found = fs::is_directory(folder) ? "" : "a file";
  if (fs::is_directory(folder)) {
    if (fs::exists(folder / "config.json")) found = "a Hugging Face model (config.json)";
    if (!all_checkpoint_folders(folder).empty() || fs::exists(folder / kTrackerFile))
      found = "checkpoints of a run or of a conversion";
    for (const auto& entry : fs::directory_iterator(folder)) {
      const std::string name = entry.path().filename().string();
      if (found.empty() && !is_temporary_name(name) && name != kLockFile) found = name;
    }
  }
  if (found.empty()) return;
  throw UserError({"--save " + folder.string() + ": is not empty", "it holds " + found,
                   "choose a new folder; nothing is overwritten"});
}

std::vector<std::filesystem::path> all_checkpoint_folders(const std::filesystem::path& root) {
  if (is_committed(root)) return {root};
  std::vector<std::filesystem::path> folders;
  if (is_committed(root / kReleaseFolder)) folders.push_back(root / kReleaseFolder);
  for (const std::int64_t iteration : committed_iterations(root))
    folders.push_back(*committed_folder(root, iteration_folder(iteration)));
  return folders;
}

}  // namespace megatron
