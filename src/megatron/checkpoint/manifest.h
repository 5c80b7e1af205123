// The manifest of one checkpoint folder (docs/formats/checkpoint.md): which slices of which global
// tensors lie in which file, with checksums; and everything that is not a tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_value.h"
#include "megatron/checkpoint/box_math.h"
#include "megatron/checkpoint/safetensors_dtype.h"
#include "megatron/checkpoint/training_progress.h"
#include "megatron/optimizer/loss_scaling.h"

namespace megatron {

enum class TensorKind { weight, optimizer };

/// One box of a global tensor and where it lies.
struct Piece {
  std::string file = {};  ///< safetensors file beside the manifest
  std::string key = {};   ///< tensor in that file
  Region region = {};
  std::uint64_t checksum = 0;
};

/// A global tensor; its pieces tile it exactly.
struct ManifestTensor {
  TensorKind kind = TensorKind::weight;
  SafetensorsDtype type = SafetensorsDtype::F32;
  Shape shape = {};
  std::vector<Piece> pieces = {};
};

struct OptimizerRecord {
  std::string name = {};  ///< adam, sgd
  std::int64_t num_steps = 0;
  std::optional<LossScaleState> loss_scale = {};  ///< of fp16 with a dynamic scale
  bool operator==(const OptimizerRecord&) const = default;
};

struct Manifest {
  TrainingProgress progress;
  JsonValue model;     ///< architecture_to_json
  JsonValue settings;  ///< for people and for the diff on resume
  std::optional<OptimizerRecord> optimizer;
  JsonValue rerun_state;   ///< of a step that is to be run again; null: none
  std::string model_type;  ///< Hugging Face family the weights came from; "" for none
  std::map<std::string, std::uint64_t> files;    ///< auxiliary files (relative path → checksum)
  std::map<std::string, std::uint64_t> headers;  ///< safetensors files: checksum of the header
  std::map<std::string, ManifestTensor>
      tensors;  ///< weights by name; optimizer state as "<state>.<name>"
};

inline constexpr const char* kManifestFile = "manifest.json";

/// The manifest as indented text with its own checksum.
std::string manifest_text(const Manifest& manifest);

/// Parses and validates; errors name `source` and the tensor.
Manifest parse_manifest(const std::string& text, const std::string& source);

/// Headers and tensors alone: what one of several writers adds.
std::string manifest_part_text(const Manifest& manifest);
void merge_manifest_part(Manifest& manifest, const std::string& text, const std::string& source);

/// Why the pieces of a tensor do not tile it, naming the tensor; empty when all do.
std::string tiling_error(const Manifest& manifest);

/// Reads folder/manifest.json.
Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace megatron
