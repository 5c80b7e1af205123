#include "megatron/metrics/report/run_log.h"

#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/base/files.h"

namespace megatron {
namespace {

using Object = simdjson::dom::object;
using Element = simdjson::dom::element;

/// Returns the line with NaN, Infinity and -Infinity outside strings replaced by null.
std::string non_finite_to_null(std::string_view line) {
  std::string text;
  bool quoted = false;
  for (std::size_t i = 0; i < line.size();) {
    if (quoted && line[i] == '\\' && i + 1 < line.size()) {
      text += line.substr(i, 2);
      i += 2;
      continue;
    }
    if (line[i] == '"') quoted = !quoted;
    std::size_t matched = 0;
    for (const std::string_view word : {"NaN", "-Infinity", "Infinity"}) {
      if (!quoted && line.substr(i).starts_with(word)) matched = word.size();
      if (matched > 0) break;
    }
    if (matched > 0) {
      text += "null";
      i += matched;
    } else {
      text += line[i++];
    }
  }
  return text;
}

/// Converts numbers and booleans to double, null to NaN; nullopt for other kinds.
std::optional<double> number(const Element& value) {
  double result = 0;
  if (value.get(result) == simdjson::SUCCESS) return result;
  bool flag = false;
  if (value.get(flag) == simdjson::SUCCESS) return flag ? 1 : 0;
  if (value.is_null()) return std::numeric_limits<double>::quiet_NaN();
  return std::nullopt;
}

Series& series_of(RunLog& log, std::string_view key) {
  const auto found = log.steps.find(key);
  return found != log.steps.end() ? found->second : log.steps[std::string(key)];
}

/// Returns the elements of a list of numbers, with NaN for any other element; empty if `value` is
/// no list.
std::vector<double> numbers(const Element& value) {
  std::vector<double> result;
  simdjson::dom::array list;
  if (value.get(list) != simdjson::SUCCESS) return result;
  for (const Element& element : list)
    result.push_back(number(element).value_or(std::numeric_limits<double>::quiet_NaN()));
  return result;
}

/// Mean and extremes of the finite values; all NaN if there are none.
struct LayerRange {
  double mean, min, max;
};

LayerRange range_over_layers(const std::vector<double>& values) {
  LayerRange range{0, std::nan(""), std::nan("")};
  double count = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    range.mean += value;
    range.min = std::fmin(range.min, value);
    range.max = std::fmax(range.max, value);
    ++count;
  }
  range.mean = count > 0 ? range.mean / count : std::nan("");
  return range;
}

/// Keeps the loads of the latest iteration.
void read_loads(const Object& routing, std::int64_t iteration, RunLog& log) {
  simdjson::dom::array rows;
  if (iteration < log.expert_loads.iteration || routing["load"].get(rows) != simdjson::SUCCESS)
    return;
  ExpertLoads loads{.iteration = iteration, .layers = {}, .loads = {}};
  bool has_loads = false;
  for (const Element& row : rows) {
    loads.layers.push_back(static_cast<std::int64_t>(loads.layers.size()));
    std::vector<double>& values = loads.loads.emplace_back(numbers(row));
    for (double& value : values) {
      if (!(value >= 0)) value = std::numeric_limits<double>::quiet_NaN();
      has_loads = has_loads || std::isfinite(value);
    }
  }
  Element layers;
  if (routing["layers"].get(layers) == simdjson::SUCCESS) {
    const std::vector<double> indices = numbers(layers);
    for (std::size_t i = 0; i < std::min(indices.size(), loads.layers.size()); ++i) {
      if (indices[i] >= 0 && indices[i] < 1e6)
        loads.layers[i] = static_cast<std::int64_t>(indices[i]);
    }
  }
  if (has_loads) log.expert_loads = std::move(loads);
}

/// Adds a point to each curve of the routers. Fields that are missing or no lists have none.
void read_routing(const Object& routing, std::int64_t iteration, RunLog& log) {
  log.has_routing = true;
  for (const char* field : {"imbalance", "entropy", "dropped"}) {
    Element list;
    if (routing[field].get(list) != simdjson::SUCCESS) continue;
    const std::vector<double> values = numbers(list);
    if (values.empty()) continue;
    const LayerRange range = range_over_layers(values);
    const std::string name = std::string("routing ") + field;
    const auto x = static_cast<double>(iteration);
    series_of(log, name + " mean").add(x, range.mean);
    series_of(log, name + " min").add(x, range.min);
    series_of(log, name + " max").add(x, range.max);
  }
  read_loads(routing, iteration, log);
}

void read_object(const Object& object, std::int64_t iteration, RunLog& log) {
  Element run;
  if (object["run"].get(run) == simdjson::SUCCESS && run.is_object()) {
    log.starts.emplace_back(
        Json::parse(simdjson::minify(run), nullptr, /*allow_exceptions=*/false));
    log.start_iterations.push_back(iteration);
    return;
  }
  Object routing;
  if (object["routing"].get(routing) == simdjson::SUCCESS) read_routing(routing, iteration, log);
  std::string_view split;
  const bool is_evaluation = object["split"].get(split) == simdjson::SUCCESS;
  for (const auto& [key, value] : object) {
    if (key == "iteration") continue;
    const auto y = number(value);
    if (!y) continue;
    Series& series = is_evaluation ? log.evaluations[std::string(key) + " " + std::string(split)]
                                   : series_of(log, key);
    series.add(static_cast<double>(iteration), *y);
  }
}

class LineParser {
 public:
  bool read(std::string_view line, RunLog& log) {
    return parse_line(line, log) || parse_line(non_finite_to_null(line), log);
  }

 private:
  bool parse_line(std::string_view line, RunLog& log) {
    Object object;
    std::int64_t iteration = 0;
    if (parser_.parse(line.data(), line.size()).get(object) != simdjson::SUCCESS) return false;
    if (object["iteration"].get(iteration) != simdjson::SUCCESS || iteration < 0) return false;
    read_object(object, iteration, log);
    return true;
  }
  simdjson::dom::parser parser_;
};

void count_unreadable(std::string_view line, RunLog& log) {
  if (++log.unreadable_lines > 1) return;
  log.first_unreadable = "line " + std::to_string(log.lines) + ": " +
                         std::string(line.substr(0, 60)) + (line.size() > 60 ? "…" : "");
}

/// Returns the metrics of a folder, or of its only subfolder that has some: --tensorboard-dir is
/// often a folder inside --save.
fs::path metrics_in(const fs::path& folder) {
  fs::path here = folder / "metrics.jsonl";
  if (fs::exists(here)) return here;
  std::vector<fs::path> below;
  std::error_code error;  // a folder that cannot be read has none
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    fs::path file = entry.path() / "metrics.jsonl";
    if (fs::exists(file, error)) below.push_back(std::move(file));
  }
  return below.size() == 1 ? below[0] : here;
}

}  // namespace

std::vector<std::vector<double>> relative_loads(const ExpertLoads& loads) {
  std::vector<std::vector<double>> relative = loads.loads;
  for (std::vector<double>& row : relative) {
    const double mean = range_over_layers(row).mean;
    for (double& load : row) load = load == 0 ? 0 : load / mean;
  }
  return relative;
}

void Series::sort_and_deduplicate() {
  const bool is_ascending =
      std::adjacent_find(x.begin(), x.end(), std::greater_equal<>()) == x.end();
  if (is_ascending) return;
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return x[a] < x[b]; });
  Series sorted;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i + 1 == order.size() || x[order[i]] != x[order[i + 1]])
      sorted.add(x[order[i]], y[order[i]]);
  }
  *this = std::move(sorted);
}

bool read_metrics_line(std::string_view line, RunLog& log) { return LineParser().read(line, log); }

RunLog read_run_log(const fs::path& path) {
  const fs::path file = fs::is_directory(path) ? metrics_in(path) : path;
  if (!fs::exists(file)) {
    throw UserError({"there are no metrics of a run in " + path.string(),
                     file.string() + " does not exist",
                     "give the --save or --tensorboard-dir folder of a run, or its metrics.jsonl"});
  }
  RunLog log{.name = fs::weakly_canonical(file).parent_path().filename().string()};
  const MappedFile mapped(file);
  std::string_view rest(reinterpret_cast<const char*>(mapped.data()), mapped.size());
  LineParser reader;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    ++log.lines;
    if (!reader.read(line, log)) count_unreadable(line, log);
  }
  for (auto* group : {&log.steps, &log.evaluations}) {
    for (auto& [key, series] : *group) series.sort_and_deduplicate();
  }
  return log;
}

}  // namespace megatron
