#include "megatron/checkpoint/stale_temporaries.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <functional>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/machine.h"

namespace megatron {
namespace {

constexpr std::string_view kFolderMark = ".tmp-", kFileMark = ".tmp.", kBackupMark = ".old";

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// Returns whether a save or a run uses this name: iter_0000010, release, or a file that it
/// replaces.
bool is_saved_name(std::string_view base) {
  static constexpr std::array names{"release", "latest_checkpointed_iteration.txt", ".space",
                                    kWriteProbe, "metrics.jsonl"};
  return std::ranges::count(names, base) > 0 ||
         (base.starts_with("iter_") && is_number(base.substr(5)));
}

bool is_process_alive(const std::string& process) {
  pid_t id = 0;
  const auto [end, code] = std::from_chars(process.data(), process.data() + process.size(), id);
  return code == std::errc{} && id != ::getpid() && (::kill(id, 0) == 0 || errno == EPERM);
}

bool changed_within_the_hour(const fs::path& path) {
  const auto limit = fs::file_time_type::clock::now() - std::chrono::hours(1);
  std::error_code code;
  if (fs::last_write_time(path, code) > limit) return true;
  for (const auto& entry : fs::directory_iterator(path, code)) {
    if (entry.last_write_time(code) > limit) return true;
  }
  return false;
}

/// Returns whether the process that made this file or folder has ended, as far as this can be known
/// without a lock.
bool is_abandoned(const fs::path& path, const TemporaryName& temporary) {
  if (!temporary.host.empty() && temporary.host != host_name())
    return !changed_within_the_hour(path);
  return !is_process_alive(temporary.process);
}

std::vector<std::pair<fs::path, TemporaryName>> temporaries_in(
    const fs::path& folder, const std::function<bool(const TemporaryName&)>& is_wanted) {
  std::vector<std::pair<fs::path, TemporaryName>> found;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const auto temporary = parse_temporary_name(entry.path().filename().string());
    if (temporary && is_wanted(*temporary)) found.emplace_back(entry.path(), *temporary);
  }
  return found;
}

void restore_or_remove(const fs::path& path, const TemporaryName& temporary, FileSystem& files) {
  const fs::path place = path.parent_path() / temporary.base;
  if (temporary.is_backup && !fs::exists(place) && files.rename(path, place) == 0) return;
  try_remove_tree(path, files);
}

}  // namespace

std::string temporary_suffix() {
  return std::string(kFolderMark) + host_name() + "-" + std::to_string(::getpid());
}

std::optional<TemporaryName> parse_temporary_name(const std::string& name) {
  TemporaryName found;
  if (const auto at = name.rfind(kFolderMark), dash = name.rfind('-');
      at != std::string::npos && dash > at + kFolderMark.size()) {
    found = {name.substr(0, at),
             name.substr(at + kFolderMark.size(), dash - at - kFolderMark.size()),
             name.substr(dash + 1)};
  } else if (const auto dot = name.rfind(kFileMark); dot != std::string::npos) {
    found = {name.substr(0, dot), {}, name.substr(dot + kFileMark.size())};
  }
  if (found.base.empty() || !is_number(found.process)) return std::nullopt;
  found.is_backup = found.base.ends_with(kBackupMark);
  if (found.is_backup) found.base.resize(found.base.size() - kBackupMark.size());
  return found;
}

bool is_temporary_name(const std::string& name) {
  const auto temporary = parse_temporary_name(name);
  return temporary && is_saved_name(temporary->base);
}

void remove_stale_temporaries(const fs::path& root, bool is_locked, FileSystem& files) {
  for (const auto& [path, temporary] :
       temporaries_in(root, [](const TemporaryName& found) { return is_saved_name(found.base); })) {
    if (is_locked || is_abandoned(path, temporary)) restore_or_remove(path, temporary, files);
  }
}

void remove_stale_temporaries_of(const fs::path& final_path, FileSystem& files) {
  const std::string name = final_path.filename().string();
  for (const auto& [path, temporary] :
       temporaries_in(final_path.parent_path(),
                      [&](const TemporaryName& found) { return found.base == name; })) {
    if (is_abandoned(path, temporary)) restore_or_remove(path, temporary, files);
  }
}

std::optional<fs::path> find_backup(const fs::path& root, const std::string& name) {
  const auto found = temporaries_in(root, [&](const TemporaryName& temporary) {
    return temporary.is_backup && temporary.base == name;
  });
  return found.empty() ? std::nullopt : std::optional(found.front().first);
}

void try_remove_tree(const fs::path& path, FileSystem& files) {
  try {
    remove_tree(path, files);
  } catch (const UserError&) {  // expected of a full or broken disk; the next run tries again
  }
}

}  // namespace megatron
