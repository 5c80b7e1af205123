// Reads the files of a Hugging Face directory: config.json, the safetensors that the index names,
// and the files that accompany the weights. GGUF files are read as a directory of the same model.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/files.h"
#include "megatron/base/json_value.h"
#include "megatron/checkpoint/gguf/gguf_model.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/models/hf/hf_config.h"

namespace megatron {

/// Returns whether `path` is a folder with config.json, a GGUF file or a folder with such files.
bool looks_like_hf_directory(const std::filesystem::path& path);

/// Reads the auxiliary files that exist in `folder`.
AuxiliaryFiles read_auxiliary_files(const std::filesystem::path& folder);

/// Names the classes of a model in a config.json, from which exports take them.
void set_class_names(const std::vector<std::string>& classes, AuxiliaryFiles& files);

/// Returns the names of the files with an extension, sorted.
std::vector<std::string> files_with_extension(const std::filesystem::path& folder,
                                              std::string_view extension);

class HfDirectory {
 public:
  /// Reads config.json and the headers of the weights; or those of a GGUF file or of its folder.
  /// UserErrors name file and field.
  explicit HfDirectory(const std::filesystem::path& folder);

  struct Entry {
    std::filesystem::path file = {};
    StoredTensor tensor = {};  ///< as the family has it; its offsets are the file's
    std::span<const std::byte> bytes = {};
    GgufForm form = {};  ///< how a GGUF file stores it
  };
  const std::filesystem::path& folder() const { return folder_; }
  const HfConfig& config() const { return config_; }
  const HfFamily& family() const { return *family_; }
  /// Returns tensors by the family's full names ("model.…", "transformer.…", "lm_head.weight").
  const std::map<std::string, Entry>& tensors() const { return tensors_; }
  /// Reads the files beside the weights that exist. A GGUF file has a config.json and, unless the
  /// folder has one, a tokenizer; one that is not read becomes a note.
  AuxiliaryFiles auxiliary_files(std::vector<std::string>& notes) const;

 private:
  void open(const std::string& name);
  void open_gguf();
  /// Corrects what config.json says by the tensors: transformers saves models without multi-token
  /// prediction, but with its key, and published folders of BERT name a class with other heads.
  void match_tensors();

  std::filesystem::path folder_;
  HfConfig config_;
  const HfFamily* family_ = nullptr;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<MappedFile> gguf_files_;          ///< empty for a folder of safetensors
  JsonValue gguf_config_, gguf_metadata_ = {};  ///< config.json, and what it was made from
  std::map<std::string, Entry> tensors_;
};

}  // namespace megatron
