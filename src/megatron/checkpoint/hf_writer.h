// Writes weights as a Hugging Face directory: config.json, safetensors (with an index beyond 5 GB)
// and the auxiliary files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "megatron/checkpoint/checkpoint_tokenizer.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/settings.h"

namespace megatron {

struct HfExport {
  TransformerConfig model = {};
  std::string model_type = {};               ///< "": the first family whose mapping is total
  std::optional<at::ScalarType> dtype = {};  ///< nothing: as stored
  AuxiliaryFiles auxiliary_files = {};       ///< its config.json lends the keys that are not ours
  TokenIds ids = {};  ///< the tokenizer's, for config.json where the source's config.json has none
  std::uint64_t max_shard_bytes = 5'000'000'000;  ///< of one file
};

/// Writes `folder`, which must not exist or be empty; it appears whole or not at all.
void write_hf_directory(WeightReader& reader, const HfExport& request,
                        const std::filesystem::path& folder);

}  // namespace megatron
