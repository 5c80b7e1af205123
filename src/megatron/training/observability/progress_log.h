// Implements --log-progress: writes progress.txt in the --save folder as Megatron-LM does, with one
// line per job start and one per checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "megatron/training/run/run_clock.h"

namespace megatron {

/// Input of the line about a saved checkpoint.
struct SavedProgress {
  std::int64_t iteration = 0;
  double floating_point_operations = 0;  ///< since iteration 0
  double tokens = 0;
  double elapsed_s = 0;  ///< since this job's start, on the monotonic clock
};

/// Appends lines to folder/progress.txt: local time, job, number of GPUs and a text, separated by
/// tabs.
class ProgressLog {
 public:
  struct Options {
    std::string job_id = {};  ///< SLURM_JOB_ID; may be empty
    std::int64_t world_size = 1;
    double floating_point_operations = 0;  ///< at this job's start
  };
  ProgressLog(const std::filesystem::path& folder, Options options, RunClock clock = {});

  /// Appends `Starting job`.
  void start();
  /// Appends `Saved checkpoint` with the throughput of this job and of all jobs of this world size
  /// since the first one in the file.
  void saved(const SavedProgress& progress);

 private:
  /// Start of the first job of this world size, and the operations done before it.
  struct Origin {
    std::int64_t epoch_s = 0;
    double floating_point_operations = 0;
  };
  Origin origin() const;
  void append(const std::string& text);

  std::filesystem::path path_;
  Options options_;
  RunClock clock_;
};

}  // namespace megatron
