// Lets preprocess() continue after a kill: what it had read and written at some moment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatron/datasets/dataset_part.h"
#include "megatron/datasets/preprocess.h"
#include "megatron/datasets/text_chunks.h"

namespace megatron {

struct PreprocessCheckpoint {
  InputPosition position;
  PreprocessSummary counts;  ///< without outputs, seconds and cleaning
  CleaningState cleaning;
  std::vector<std::vector<PartState>> outputs;  ///< per key and partition
};

/// Returns a text that differs between runs whose outputs may differ: options, and size and time of
/// the input files.
std::string preprocess_job(const PreprocessOptions& options, const std::vector<std::string>& files);

/// The file that holds the checkpoint of a run, PREFIX.partial.json. The destructor removes it, so
/// only a kill leaves one.
class PreprocessCheckpointFile {
 public:
  /// The caller holds the lock of the output prefix, which no other process has at the same time.
  PreprocessCheckpointFile(const std::string& output_prefix, std::string job);
  PreprocessCheckpointFile(const PreprocessCheckpointFile&) = delete;
  PreprocessCheckpointFile& operator=(const PreprocessCheckpointFile&) = delete;
  ~PreprocessCheckpointFile();

  void save(const PreprocessCheckpoint& checkpoint) const;
  static std::string path(const std::string& output_prefix);
  /// Returns the checkpoint of a killed run of the same job; nullopt if there is none.
  static std::optional<PreprocessCheckpoint> load(const std::string& output_prefix,
                                                  const std::string& job);

 private:
  std::string path_, job_;
};

}  // namespace megatron
