// Reads and writes the file of --result-rejected-tracker-filename: one line per rejected result, in
// Megatron's format. A restarted run skips iterations that failed reproducibly twice.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "megatron/training/resilience/reruns/rerun_state.h"

namespace megatron {

struct Rank;
struct Settings;

struct RejectedResult {
  std::int64_t iteration = 0;
  RerunStatus status = RerunStatus::initial_run;
  double result = 0;
  std::string message = {};
};

class TrackerFile {
 public:
  /// Uses no file when `path` is empty. UserError when the file cannot be opened for appending.
  TrackerFile(std::string path, ComputeLocation place);
  /// Appends a line. If that fails, prints a message to stderr and the run continues.
  void append(const RejectedResult& rejected) const;

 private:
  std::string path_;
  ComputeLocation place_;
};

struct SkippedIterations {
  /// ascending; to_ignore: iterations at which several ranks failed at once
  std::vector<std::int64_t> to_skip, to_ignore;
};

/// Reads a tracker file written by append() or Megatron-LM. An iteration is skipped when one rank
/// failed at it twice with reruns disabled, or reproducibly, unless several ranks of one job failed
/// at it. A missing file gives none; lines in another format are ignored.
SkippedIterations iterations_to_skip(const std::string& path);

/// Adds the iterations in the settings' tracker file, which rank 0 reads, to --iterations-to-skip
/// and prints a message. Collective over all ranks.
void skip_rejected_iterations(Settings& settings, const Rank& rank, std::ostream& out);

/// Formats a float as Python does: "nan", "inf", "4.5".
std::string result_text(double result);

}  // namespace megatron
