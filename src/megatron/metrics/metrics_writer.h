// Writes metrics as JSON lines (metrics.jsonl): one object per training step and per evaluation,
// readable during the run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "megatron/base/json_text.h"

namespace megatron {

/// Which run wrote the existing metrics.jsonl.
enum class ExistingMetrics {
  same_run,   ///< lines past the run's iteration are dropped, because they will be written again
  other_run,  ///< like same_run, but the file is first copied to metrics-1.jsonl (or -2 …)
};

class MetricsWriter {
 public:
  /// Opens folder/metrics.jsonl for appending. Drops lines of iterations past `iteration` and
  /// truncated lines. Creates the folder. UserError when the folder or the file cannot be written.
  MetricsWriter(const std::filesystem::path& folder, std::int64_t iteration,
                ExistingMetrics earlier = ExistingMetrics::same_run);

  /// Returns the path of the copy of another run's lines; empty if there is none.
  const std::filesystem::path& backup_path() const { return backup_path_; }

  /// Appends one object, which must contain "iteration", and flushes it. If the write fails, prints
  /// one warning and training continues. If the file was deleted, prints a warning and creates it
  /// again with the first object of the run at its head.
  void write(const JsonText& object);

 private:
  void append(const std::string& line);
  void recreate_file();

  std::filesystem::path path_, backup_path_;
  std::ofstream file_;
  std::string first_line_;
  bool has_partial_line_ = false;  ///< the last write failed and may have left a partial line
};

}  // namespace megatron
