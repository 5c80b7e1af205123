// Metrics as JSON lines (metrics.jsonl): one object per training step and per evaluation, readable
// while the run goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "megatron/base/json.h"

namespace megatron {

/// Whose lines a metrics.jsonl holds that a run finds.
enum class ExistingMetrics {
  same_run,   ///< those past the run's iteration will be written again, so they are dropped
  other_run,  ///< as same_run, but the whole file is first kept as metrics-1.jsonl (or -2 …)
};

class MetricsWriter {
 public:
  /// Writes nothing.
  MetricsWriter() = default;
  /// Appends to folder/metrics.jsonl after dropping the lines of iterations past `iteration` and
  /// torn lines. The folder is created; UserError when that or the file cannot be written.
  MetricsWriter(const std::filesystem::path& folder, std::int64_t iteration,
                ExistingMetrics earlier = ExistingMetrics::same_run);

  /// The copy of another run's lines; empty when nothing had to be kept.
  const std::filesystem::path& backup_path() const { return backup_path_; }

  /// Appends one object, which must hold "iteration", and flushes it. When that fails, training
  /// goes on after one warning. A file that has vanished is made again, beginning with the first
  /// object that was written, after a warning.
  void write(const OrderedJson& object);

 private:
  void append(const std::string& line);
  void recreate_file();

  std::filesystem::path path_, backup_path_;
  std::ofstream file_;
  std::string first_line_;
  bool has_partial_line_ = false;  ///< the last write failed, perhaps in the middle of a line
};

}  // namespace megatron
