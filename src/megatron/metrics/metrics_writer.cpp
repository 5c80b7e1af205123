#include "megatron/metrics/metrics_writer.h"

#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"

namespace megatron {
namespace {

bool is_kept(const std::string& line, std::int64_t iteration) {
  const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return false;
  const auto found = object.find("iteration");
  return found != object.end() && found->is_number_integer() && found->get<std::int64_t>() <= iteration;
}

/// The lines of an earlier part of this run, up to `iteration`.
std::string earlier_lines(const std::filesystem::path& path, std::int64_t iteration) {
  if (iteration == 0 || !std::filesystem::exists(path)) return {};
  std::istringstream lines(read_file(path));
  std::string kept, line;
  while (std::getline(lines, line)) {
    if (is_kept(line, iteration)) kept += line + '\n';
  }
  return kept;
}

}  // namespace

MetricsWriter::MetricsWriter(const std::filesystem::path& folder, std::int64_t iteration) : path_(folder / "metrics.jsonl") {
  megatron::create_directories(folder);
  write_file_atomically(path_, earlier_lines(path_, iteration));
  file_.open(path_, std::ios::app);
  if (!file_) throw UserError({path_.string() + " cannot be written", {}, "check the folder's permissions"});
}

void MetricsWriter::write(const OrderedJson& object) {
  if (path_.empty()) return;
  if (is_torn_) file_ << '\n';
  file_ << object.dump() << '\n' << std::flush;
  const bool failed = !file_;
  if (failed && !is_torn_)
    std::cerr << "WARNING: " << path_.string() << " cannot be written, lines are missing: check the free space of its disk" << std::endl;
  is_torn_ = failed;
  file_.clear();
}

}  // namespace megatron
