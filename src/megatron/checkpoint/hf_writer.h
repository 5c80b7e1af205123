// Writes weights as a Hugging Face directory: config.json, safetensors (with an index when they
// exceed one shard), and the auxiliary files; or as a GGUF file with the auxiliary files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/model_family.h"

namespace megatron {

struct HfExport {
  TransformerConfig model = {};
  const ModelFamily* network = &find_model_family("gpt");  ///< the family of the model
  std::string model_type = {};               ///< "": the first family that can hold the model
  std::optional<at::ScalarType> dtype = {};  ///< nullopt keeps the stored type
  AuxiliaryFiles auxiliary_files = {};       ///< its config.json provides keys that we do not write
  TokenIds ids = {};  ///< the tokenizer's ids, used where the source's config.json has no field
  std::uint64_t max_shard_bytes = 5'000'000'000;  ///< per file
  bool is_gguf = false;  ///< writes model.gguf in place of config.json and safetensors
  bool is_q8_0 = false;  ///< its matrices in Q8_0
};

/// Writes `folder` atomically. The folder must be empty or not exist. Returns remarks.
std::vector<std::string> write_hf_directory(WeightReader& reader, const HfExport& request,
                                            const std::filesystem::path& folder);

}  // namespace megatron
