// A run's metrics.jsonl read back: one series for each number, and the records that each start of
// the run left. Made for files that are torn, garbled, hand-edited or of a million lines.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_value.h"

namespace megatron {

/// Points in ascending x (iterations); y may be NaN where the file says null.
struct Series {
  std::vector<double> x, y;
  void add(double at, double value) { x.push_back(at), y.push_back(value); }
  /// Puts the points in order; of several at one x, which a run that was stopped and resumed may
  /// leave, the last written stays.
  void sort_and_deduplicate();
};

struct RunLog {
  std::string name;  ///< what the file's folder is called
  std::map<std::string, Series, std::less<>>
      steps;  ///< by key of the JSON lines: "lm loss", "learning_rate" …
  std::map<std::string, Series, std::less<>>
      evaluations;                               ///< "lm loss validation", "lm loss test" …
  std::vector<JsonValue> starts;                 ///< the "run" object of each start
  std::vector<std::int64_t> start_iterations;    ///< the iteration each start began after
  std::int64_t lines = 0, unreadable_lines = 0;  ///< blank ones are neither
  std::string first_unreadable;                  ///< "line 17: …"
};

/// Reads one line into `log`; false when it is no JSON object with an integer "iteration". NaN and
/// Infinity, as Python writes them, are taken.
bool read_metrics_line(std::string_view line, RunLog& log);

/// Reads `path`, a metrics.jsonl or a folder that holds one. UserError when there is none.
RunLog read_run_log(const std::filesystem::path& path);

}  // namespace megatron
