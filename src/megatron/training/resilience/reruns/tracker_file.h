// The file of --result-rejected-tracker-filename: one line per rejected result, in Megatron's form;
// iterations that failed reproducibly twice are passed over when the run starts again.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "megatron/config/settings.h"
#include "megatron/training/resilience/reruns/rerun_state.h"

namespace megatron {

struct RejectedResult {
  std::int64_t iteration = 0;
  RerunStatus status = RerunStatus::initial_run;
  double result = 0;
  std::string message = {};
};

class TrackerFile {
 public:
  /// No file when `path` is empty. UserError when it cannot be appended to.
  TrackerFile(std::string path, ComputeLocation place);
  /// Appends a line. A failure is told on stderr and does not stop the run.
  void append(const RejectedResult& rejected) const;

 private:
  std::string path_;
  ComputeLocation place_;
};

struct SkippedIterations {
  std::vector<std::int64_t> to_skip,
      to_ignore;  ///< ascending; ignored: several ranks failed at once
};

/// Reads what append() wrote (here or in Megatron-LM): an iteration is skipped when one rank failed
/// at it twice with reruns disabled, or reproducibly; not when several ranks of one job did. An
/// absent file gives none; lines of another form are passed over.
SkippedIterations iterations_to_skip(const std::string& path);

/// Adds the iterations that the settings' tracker file names to --iterations-to-skip, and says so.
void skip_rejected_iterations(Settings& settings, std::ostream& out);

/// Python's spelling of a float: "nan", "inf", "4.5".
std::string result_text(double result);

}  // namespace megatron
