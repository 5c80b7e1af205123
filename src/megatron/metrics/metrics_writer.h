// Metrics as JSON lines (metrics.jsonl): one object per training step and per evaluation, readable while the run goes on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "megatron/base/json.h"

namespace megatron {

class MetricsWriter {
 public:
  /// Writes nothing.
  MetricsWriter() = default;
  /// Appends to folder/metrics.jsonl after dropping the lines of iterations past `iteration` (they will be written again) and torn lines.
  /// The folder is created; UserError when that or the file cannot be written.
  MetricsWriter(const std::filesystem::path& folder, std::int64_t iteration);

  /// Appends one object, which must hold "iteration", and flushes it. When that fails, training goes on after one warning.
  void write(const OrderedJson& object);

 private:
  std::filesystem::path path_;
  std::ofstream file_;
  bool is_torn_ = false;  ///< the last write failed, perhaps in the middle of a line
};

}  // namespace megatron
