// The manifest of a checkpoint folder (docs/formats/checkpoint.md). It records which slice of
// which global tensor lies in which file, with checksums, and all state that is not a tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_value.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/checkpoint/slice_math.h"
#include "megatron/checkpoint/training_progress.h"
#include "megatron/optimizer/loss_scaling.h"

namespace megatron {

struct Field;
struct FieldSet;
struct Settings;

/// A weight, a piece of the optimizer's state, or a layer's own state (ParameterKind::state).
enum class TensorKind { weight, optimizer, state };

/// Returns the kind's name in a manifest.
const char* tensor_kind_name(TensorKind kind);

/// Bytes of a block of a piece that has a checksum of its own.
inline constexpr std::uint64_t kChecksumBlockBytes = std::uint64_t{16} << 20;

/// One slice of a global tensor and the place where it is stored.
struct Piece {
  std::string file = {};   ///< safetensors file beside the manifest
  std::string key = {};    ///< tensor in that file
  TensorSlice slice = {};  ///< held by a tensor of its own
  std::uint64_t checksum = 0;
  /// Where the bytes begin in a file of another format, which has neither key nor checksum.
  std::optional<std::uint64_t> offset = {};
  /// Checksums of its blocks of kChecksumBlockBytes, the last of which may be shorter, so that a
  /// reader of a part verifies that part. Empty for a piece of one block.
  std::vector<std::uint64_t> blocks = {};
};

/// A global tensor. Its pieces tile it exactly.
struct ManifestTensor {
  TensorKind kind = TensorKind::weight;
  bool is_frozen = false;  ///< a weight that was not trained: no optimizer state belongs to it
  SafetensorsDtype type = SafetensorsDtype::F32;
  Shape shape = {};
  std::vector<Piece> pieces = {};
};

struct OptimizerRecord {
  std::string name = {};  ///< adam, sgd
  std::int64_t num_steps = 0;
  std::optional<LossScaleState> loss_scale = {};  ///< set for fp16 with a dynamic loss scale
  bool operator==(const OptimizerRecord&) const = default;
};

struct Manifest {
  TrainingProgress progress;
  JsonValue model;     ///< written by architecture_to_json
  JsonValue settings;  ///< stored for inspection and for the diff on resume
  std::optional<OptimizerRecord> optimizer;
  /// Why there is none. Not stored.
  std::string no_optimizer = "it was saved with --no-save-optim";
  std::string family;      ///< ModelFamily::name; "" in older ones: the family of model_type
  JsonValue rerun_state;   ///< state of a step that is to be rerun; null when there is none
  std::string model_type;  ///< Hugging Face family of the weights; "" for none
  std::map<std::string, std::uint64_t> files;     ///< auxiliary files: relative path → checksum
  std::map<std::string, std::uint64_t> headers;   ///< safetensors files: name → header checksum
  std::map<std::string, ManifestTensor> tensors;  ///< weights by name; optimizer state as
                                                  ///< "<state>.<name>"
};

/// Content by file name of config.json, generation_config.json and the tokenizer's files, which are
/// carried between directories and checkpoints.
using AuxiliaryFiles = std::map<std::string, std::string>;

/// Prefix of the names under which main weights are stored as optimizer state:
/// main_param.<weight>.
inline constexpr const char* kMainParameterPrefix = "main_param.";

inline constexpr const char* kManifestFile = "manifest.json";
/// Folder of the auxiliary files in a checkpoint.
inline constexpr const char* kAuxiliaryFolder = "hugging_face";

/// Returns the values of fields of `object` as text, as a manifest stores settings.
Json fields_to_json(const FieldSet& fields, const void* object);

/// Returns the values of a field in a manifest's settings; nullopt if it is missing or unset there.
std::optional<std::vector<std::string>> saved_values(const Json& saved, const Field& field);

/// Sets the fields of `object` that a manifest's settings `saved` hold. A field that is missing,
/// unset or unreadable there, as one of another version, keeps its value.
void read_saved_fields(const Json& saved, const FieldSet& fields, void* object);
void read_saved_settings(const Json& saved, Settings& settings);

/// Formats the manifest as indented JSON that includes its own checksum.
std::string manifest_text(const Manifest& manifest);

/// Parses and validates a manifest. Errors name `source` and the tensor.
Manifest parse_manifest(const std::string& text, const std::string& source);

/// Formats the headers and tensors alone, which each writing rank sends to rank 0.
std::string manifest_part_text(const Manifest& manifest);
void merge_manifest_part(Manifest& manifest, const std::string& text, const std::string& source);

/// Returns the first tensor whose pieces do not tile it, and why; empty when all tensors are tiled.
std::string tiling_error(const Manifest& manifest);

/// Reads folder/manifest.json.
Manifest read_manifest(const std::filesystem::path& folder);

}  // namespace megatron
