#include "megatron/checkpoint/leftovers.h"

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
#include "megatron/checkpoint/folder_lock.h"

namespace megatron {
namespace {

constexpr std::string_view kFolderMark = ".tmp-", kFileMark = ".tmp.", kOldMark = ".old";

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// iter_0000010, release, or a file that a run replaces.
bool is_ours(std::string_view base) {
  static constexpr std::array names{"release", "latest_checkpointed_iteration.txt", ".space",
                                    kWriteProbe, "metrics.jsonl"};
  return std::ranges::count(names, base) > 0 || (base.starts_with("iter_") && is_number(base.substr(5)));
}

bool lives_here(const std::string& process) {
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

/// Whether the process that made this part has gone, as far as can be told without a lock.
bool is_abandoned(const fs::path& path, const Leftover& leftover) {
  if (!leftover.host.empty() && leftover.host != host_name()) return !changed_within_the_hour(path);
  return !lives_here(leftover.process);
}

std::vector<std::pair<fs::path, Leftover>> leftovers_in(const fs::path& folder, const std::function<bool(const Leftover&)>& is_wanted) {
  std::vector<std::pair<fs::path, Leftover>> found;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    const auto leftover = parse_leftover(entry.path().filename().string());
    if (leftover && is_wanted(*leftover)) found.emplace_back(entry.path(), *leftover);
  }
  return found;
}

void take_away(const fs::path& path, const Leftover& leftover, FileSystem& files) {
  const fs::path place = path.parent_path() / leftover.base;
  if (leftover.is_old && !fs::exists(place) && files.rename(path, place) == 0) return;
  remove_if_possible(path, files);
}

}  // namespace

std::string pending_mark() { return std::string(kFolderMark) + host_name() + "-" + std::to_string(::getpid()); }

std::optional<Leftover> parse_leftover(const std::string& name) {
  Leftover found;
  if (const auto at = name.rfind(kFolderMark), dash = name.rfind('-'); at != std::string::npos && dash > at + kFolderMark.size()) {
    found = {name.substr(0, at), name.substr(at + kFolderMark.size(), dash - at - kFolderMark.size()), name.substr(dash + 1)};
  } else if (const auto dot = name.rfind(kFileMark); dot != std::string::npos) {
    found = {name.substr(0, dot), {}, name.substr(dot + kFileMark.size())};
  }
  if (found.base.empty() || !is_number(found.process)) return std::nullopt;
  found.is_old = found.base.ends_with(kOldMark);
  if (found.is_old) found.base.resize(found.base.size() - kOldMark.size());
  return found;
}

bool is_uncommitted_name(const std::string& name) {
  const auto leftover = parse_leftover(name);
  return leftover && is_ours(leftover->base);
}

void remove_uncommitted(const fs::path& root, bool is_locked, FileSystem& files) {
  for (const auto& [path, leftover] : leftovers_in(root, [](const Leftover& found) { return is_ours(found.base); })) {
    if (is_locked || is_abandoned(path, leftover)) take_away(path, leftover, files);
  }
}

void remove_leftovers_of(const fs::path& final_path, FileSystem& files) {
  const std::string name = final_path.filename().string();
  for (const auto& [path, leftover] : leftovers_in(final_path.parent_path(), [&](const Leftover& found) { return found.base == name; })) {
    if (is_abandoned(path, leftover)) take_away(path, leftover, files);
  }
}

std::optional<fs::path> find_set_aside(const fs::path& root, const std::string& name) {
  const auto found = leftovers_in(root, [&](const Leftover& leftover) { return leftover.is_old && leftover.base == name; });
  return found.empty() ? std::nullopt : std::optional(found.front().first);
}

void remove_if_possible(const fs::path& path, FileSystem& files) {
  try {
    remove_tree(path, files);
  } catch (const UserError&) {
  }
}

}  // namespace megatron
