// Parses a run's metrics.jsonl: one series per number, and the records that each start of the run
// wrote. It tolerates truncated, corrupt, hand-edited and very large files.
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

/// The choices of each expert in one iteration. NaN stands for anything but a number ≥ 0.
struct ExpertLoads {
  std::int64_t iteration = -1;             ///< -1: no iteration has loads
  std::vector<std::int64_t> layers;        ///< 0-based index in the model of each row
  std::vector<std::vector<double>> loads;  ///< a row for each layer; rows may differ in length
};

/// Returns each load divided by the mean of the finite loads of its layer: 1 is even. NaN stays
/// NaN, and 0 stays 0 also where the mean is 0.
std::vector<std::vector<double>> relative_loads(const ExpertLoads& loads);

/// Points in ascending x (iterations). y is NaN where the file has null.
struct Series {
  std::vector<double> x, y;
  void add(double at, double value) { x.push_back(at), y.push_back(value); }
  /// Sorts the points by x. Where several points have the same x, as after a resume, the last one
  /// written is kept.
  void sort_and_deduplicate();
};

struct RunLog {
  std::string name;  ///< name of the file's folder
  /// Keyed by JSON key: "lm loss", "learning_rate" … What routers did is one series for each field
  /// and statistic over the layers: "routing imbalance mean", "routing entropy min" …
  std::map<std::string, Series, std::less<>> steps;
  std::map<std::string, Series, std::less<>>
      evaluations;           ///< "lm loss validation", "lm loss test" …
  bool has_routing = false;  ///< a step has "routing", so the run has layers with experts
  ExpertLoads expert_loads;
  std::vector<JsonValue> starts;                 ///< the "run" object of each start
  std::vector<std::int64_t> start_iterations;    ///< number of iterations done before each start
  std::int64_t lines = 0, unreadable_lines = 0;  ///< blank lines count as neither
  std::string first_unreadable;                  ///< "line 17: …"
};

/// Parses one line into `log`. Returns false when it is not a JSON object with an integer
/// "iteration". Accepts NaN and Infinity, which Python writes.
bool read_metrics_line(std::string_view line, RunLog& log);

/// Reads `path`, a metrics.jsonl file or a folder that contains one, or whose only subfolder with
/// one is meant. UserError when there is none.
RunLog read_run_log(const std::filesystem::path& path);

}  // namespace megatron
