#include "megatron/training/observability/progress_log.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/wall_clock.h"

namespace megatron {
namespace {

std::optional<std::int64_t> time_value(const std::string& text) {
  std::tm parts{};
  parts.tm_isdst = -1;
  if (strptime(text.c_str(), "%Y-%m-%d %H:%M:%S", &parts) == nullptr) return std::nullopt;
  return std::mktime(&parts);
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields;
  for (std::size_t begin = 0; begin <= line.size();) {
    const std::size_t end = std::min(line.find('\t', begin), line.size());
    fields.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return fields;
}

/// Returns the number after "name: ".
double number_after_colon(const std::string& field) {
  const auto colon = field.find(": ");
  return colon == std::string::npos ? 0 : std::strtod(field.c_str() + colon + 2, nullptr);
}

double tera_per_second(double operations, double seconds) {
  return seconds > 0 ? std::max(operations, 0.0) / (seconds * 1e12) : 0;
}

}  // namespace

ProgressLog::ProgressLog(const std::filesystem::path& folder, Options options, RunClock clock)
    : path_(folder / "progress.txt"), options_(std::move(options)), clock_(std::move(clock)) {
  megatron::create_directories(folder);
}

void ProgressLog::start() { append("Starting job"); }

void ProgressLog::saved(const SavedProgress& progress) {
  const Origin first = origin();
  const double operations = progress.floating_point_operations,
               gpus = static_cast<double>(options_.world_size);
  // If the wall clock was set back, the total time must not be shorter than this job's.
  const double all_s =
      std::max(static_cast<double>(clock_.epoch_s() - first.epoch_s), progress.elapsed_s);
  append(format(
      "Saved checkpoint\tIteration: %lld\tJob throughput: %.1f TFLOP/s/GPU\tCumulative throughput: "
      "%.1f TFLOP/s/GPU\t"
      "Floating-point operations: %.2e\tTokens (in billions): %.2f",
      static_cast<long long>(progress.iteration),
      tera_per_second(operations - options_.floating_point_operations, progress.elapsed_s) / gpus,
      tera_per_second(operations - first.floating_point_operations, all_s) / gpus, operations,
      progress.tokens / 1e9));
}

ProgressLog::Origin ProgressLog::origin() const {
  const Origin none{clock_.epoch_s(), options_.floating_point_operations};
  Origin found = none;
  bool is_found = false;
  double latest_operations = 0;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields.size() < 4) continue;
    if (fields[3] == "Saved checkpoint" && fields.size() > 7)
      latest_operations = number_after_colon(fields[7]);
    if (static_cast<std::int64_t>(number_after_colon(fields[2])) != options_.world_size)
      is_found = false;
    const auto time = time_value(fields[0]);
    if (is_found || fields[3] != "Starting job" || !time ||
        static_cast<std::int64_t>(number_after_colon(fields[2])) != options_.world_size)
      continue;
    found = {*time, latest_operations};
    is_found = true;
  }
  return is_found ? found : none;
}

void ProgressLog::append(const std::string& text) {
  std::ofstream file(path_, std::ios::app);
  file << local_time(clock_.epoch_s()) << "\tJob ID: " << options_.job_id
       << "\t# GPUs: " << options_.world_size << '\t' << text << '\n'
       << std::flush;
  if (!file)
    throw UserError({path_.string() + " cannot be written",
                     {},
                     "check the permissions and the free space of its folder"});
}

}  // namespace megatron
