#include "megatron/metrics/metrics_writer.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json_fwd.h"
#include "megatron/base/json_text.h"
#include "megatron/metrics/deleted_file.h"

namespace megatron {
namespace {

/// Returns nullopt for a truncated line.
std::optional<std::int64_t> iteration_of(const std::string& line) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find("iteration");
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<std::int64_t>();
}

/// Contents of an existing metrics.jsonl.
struct ExistingLines {
  std::string kept;       ///< lines up to the run's iteration
  bool has_more = false;  ///< there are lines past it
};

ExistingLines read_existing_lines(const fs::path& path, std::int64_t iteration) {
  ExistingLines found;
  if (!fs::exists(path)) return found;
  std::istringstream lines(read_file(path));
  const bool keeps_some = iteration > 0;
  for (std::string line; (keeps_some || !found.has_more) && std::getline(lines, line);) {
    const std::optional<std::int64_t> at = iteration_of(line);
    if (!at) continue;
    if (keeps_some && *at <= iteration) {
      found.kept += line + '\n';
    } else if (*at > 0) {
      found.has_more = true;
    }
  }
  return found;
}

/// Returns the first free name metrics-<n>.jsonl in the folder of `path`.
fs::path free_name(const fs::path& path) {
  for (int n = 1;; ++n) {
    fs::path name = path.parent_path() / ("metrics-" + std::to_string(n) + ".jsonl");
    if (!fs::exists(name)) return name;
  }
}

}  // namespace

MetricsWriter::MetricsWriter(const fs::path& folder, std::int64_t iteration,
                             ExistingMetrics existing)
    : path_(folder / "metrics.jsonl") {
  megatron::create_directories(folder);
  const ExistingLines found = read_existing_lines(path_, iteration);
  if (existing == ExistingMetrics::other_run && found.has_more) {
    backup_path_ = free_name(path_);
    write_file_atomically(backup_path_, read_file(path_));
  }
  write_file_atomically(path_, found.kept);
  file_.open(path_, std::ios::app);
  if (!file_)
    throw UserError({path_.string() + " cannot be written", {}, "check the folder's permissions"});
}

void MetricsWriter::write(const JsonText& object) {
  const std::string line = object.dump() + '\n';
  if (!first_line_.empty() && is_deleted(path_)) recreate_file();
  if (first_line_.empty()) first_line_ = line;
  append(line);
}

/// Creates the file and folder again after deletion; only the lines written so far are lost.
void MetricsWriter::recreate_file() {
  reopen_deleted_file(path_, file_, "lines");
  has_partial_line_ = false;
  append(first_line_);
}

void MetricsWriter::append(const std::string& line) {
  if (has_partial_line_) file_ << '\n';
  file_ << line << std::flush;
  const bool failed = !file_;
  if (failed && !has_partial_line_)
    std::cerr << "WARNING: " << path_.string()
              << " cannot be written, lines are missing: check the free space of its disk"
              << std::endl;
  has_partial_line_ = failed;
  file_.clear();
}

}  // namespace megatron
