#include "megatron/training/resilience/reruns/tracker_file.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <set>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/config/field_values.h"
#include "megatron/config/rerun_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/observability/log_lines.h"

namespace megatron {
namespace {

std::string job_id() {
  const char* id = std::getenv("SLURM_JOBID");
  return id != nullptr ? id : "N/A";
}

struct TrackedLine {
  std::string job;
  std::int64_t rank = 0, iteration = 0;
  std::string status;  ///< upper case, without the enum's prefix
};

std::optional<TrackedLine> parse_line(const std::string& line) {
  static const std::regex pattern(R"(ts=.+ node=.+ device=.+ jobID=(.+) rank=(\d{1,18}) )"
                                  R"(iteration=(-?\d{1,18}) status=(\S+) result=.+ message=.+)");
  std::smatch match;
  if (line.size() > 4096 || !std::regex_search(line, match, pattern)) return std::nullopt;
  std::string status = match[4];
  status = status.substr(status.rfind('.') + 1);
  std::ranges::transform(status, status.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return TrackedLine{match[1], std::stoll(match[2]), std::stoll(match[3]), status};
}

bool counts(const std::string& status) {
  return status == "RERUN_DISABLED" || status == "FIRST_RERUN_REPRODUCIBLE" ||
         status == "SECOND_RERUN_REPRODUCIBLE";
}

}  // namespace

std::string result_text(double result) {
  if (std::isnan(result)) return "nan";
  if (std::isinf(result)) return result > 0 ? "inf" : "-inf";
  return number_text(result);
}

TrackerFile::TrackerFile(std::string path, ComputeLocation place)
    : path_(std::move(path)), place_(std::move(place)) {
  if (path_.empty() || std::ofstream(path_, std::ios::app)) return;
  throw UserError({"--result-rejected-tracker-filename " + path_, "cannot be appended to",
                   "give a file in a folder that exists and is writable"});
}

void TrackerFile::append(const RejectedResult& rejected) const {
  if (path_.empty()) return;
  std::ofstream file(path_, std::ios::app);
  file << "ts=" << current_time() << " node=" << place_.node << " device=" << place_.device
       << " jobID=" << job_id() << " rank=0 iteration=" << rejected.iteration
       << " status=RerunValidationStatus." << name_of(rejected.status)
       << " result=" << result_text(rejected.result) << " message='" << rejected.message << "'"
       << std::endl;
  if (!file)
    std::cerr << "Could not log validation error! (" << path_ << " cannot be written)" << std::endl;
}

SkippedIterations iterations_to_skip(const std::string& path) {
  std::set<std::pair<std::int64_t, std::int64_t>> seen;
  std::map<std::pair<std::string, std::int64_t>, std::set<std::int64_t>> ranks;
  std::set<std::int64_t> skip, ignore;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto tracked = parse_line(line);
    if (!tracked || !counts(tracked->status)) continue;
    if (!seen.insert({tracked->rank, tracked->iteration}).second) skip.insert(tracked->iteration);
    auto& of_job = ranks[{tracked->job, tracked->iteration}];
    of_job.insert(tracked->rank);
    if (of_job.size() > 1) ignore.insert(tracked->iteration);
  }
  SkippedIterations result{.to_skip = {}, .to_ignore = {ignore.begin(), ignore.end()}};
  std::ranges::set_difference(skip, ignore, std::back_inserter(result.to_skip));
  return result;
}

void skip_rejected_iterations(Settings& settings, const Rank& rank, std::ostream& out) {
  const std::string& path = settings.rerun->result_rejected_tracker_filename;
  if (path.empty()) return;
  const SkippedIterations found =
      rank.world.rank == 0 ? iterations_to_skip(path) : SkippedIterations{};
  out << "Will skip these iterations from tracker file: [" << joined_text(found.to_skip) << "]"
      << std::endl;
  if (!found.to_ignore.empty())
    out << "Will not skip these iterations due to multiple rank errors: ["
        << joined_text(found.to_ignore) << "]" << std::endl;
  std::vector<std::string> numbers;
  for (const std::int64_t iteration : found.to_skip) numbers.push_back(std::to_string(iteration));
  for (const std::string& number : broadcast_strings({rank.world, rank.device}, numbers))
    settings.training->iterations_to_skip.push_back(std::stoll(number));
}

}  // namespace megatron
