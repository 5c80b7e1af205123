// Reads the files of a Hugging Face directory: config.json, the safetensors that the index names,
// and the files that accompany the weights.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/models/hf/hf_config.h"

namespace megatron {

/// Returns whether the folder has a config.json.
bool looks_like_hf_directory(const std::filesystem::path& folder);

/// Reads the auxiliary files that exist in `folder`.
AuxiliaryFiles read_auxiliary_files(const std::filesystem::path& folder);

class HfDirectory {
 public:
  /// Reads config.json and the headers of the weights. UserErrors name file and field.
  explicit HfDirectory(const std::filesystem::path& folder);

  struct Entry {
    const SafetensorsFile* file;
    const StoredTensor* tensor;
  };
  const std::filesystem::path& folder() const { return folder_; }
  const HfConfig& config() const { return config_; }
  const HfFamily& family() const { return *family_; }
  /// Returns tensors by the family's full names ("model.…", "transformer.…", "lm_head.weight").
  const std::map<std::string, Entry>& tensors() const { return tensors_; }

 private:
  void open(const std::string& name);
  /// Corrects what config.json says by the tensors: transformers saves models without multi-token
  /// prediction, but with its key, and published folders of BERT name a class with other heads.
  void match_tensors();

  std::filesystem::path folder_;
  HfConfig config_;
  const HfFamily* family_ = nullptr;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Entry> tensors_;
};

}  // namespace megatron
