#include "megatron/checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"

namespace megatron {
namespace {

constexpr const char* kFormat = "megatron-checkpoint";
constexpr std::int64_t kVersion = 1;

[[noreturn]] void throw_damaged_manifest(const std::string& place, const std::string& what,
                                         const std::string& got = {}) {
  throw UserError({place + ": " + what, got, "the checkpoint is damaged: load another one"});
}

Json to_json(const TrainingProgress& progress) {
  return {{"iteration", progress.iteration},
          {"consumed_train_samples", progress.consumed_train_samples},
          {"skipped_train_samples", progress.skipped_train_samples},
          {"consumed_valid_samples", progress.consumed_valid_samples},
          {"scheduler_num_steps", progress.scheduler_num_steps},
          {"floating_point_operations", progress.floating_point_operations}};
}

constexpr TensorKind kTensorKinds[] = {TensorKind::weight, TensorKind::optimizer,
                                       TensorKind::state};

Json to_json(const Piece& piece) {
  return {{"file", piece.file},
          {"key", piece.key},
          {"offset", piece.slice.global_offset},
          {"shape", piece.slice.shape},
          {"xxh3", checksum_hex(piece.checksum)}};
}

Json to_json(const ManifestTensor& tensor) {
  Json pieces = Json::array();
  for (const Piece& piece : tensor.pieces) pieces.push_back(to_json(piece));
  return {{"kind", tensor_kind_name(tensor.kind)},
          {"dtype", std::string(safetensors_dtype_name(tensor.type))},
          {"shape", tensor.shape},
          {"pieces", pieces}};
}

Json to_json(const OptimizerRecord& optimizer) {
  Json json = {{"name", optimizer.name}, {"num_steps", optimizer.num_steps}};
  if (const auto& scale = optimizer.loss_scale) {
    json["loss_scale"] = {{"scale", scale->scale},
                          {"growth_tracker", scale->growth_tracker},
                          {"hysteresis_tracker", scale->hysteresis_tracker}};
  }
  return json;
}

Json to_json(const std::map<std::string, std::uint64_t>& checksums) {
  Json json = Json::object();
  for (const auto& [name, value] : checksums) json[name] = checksum_hex(value);
  return json;
}

Json to_json(const std::map<std::string, ManifestTensor>& tensors) {
  Json json = Json::object();
  for (const auto& [name, tensor] : tensors) json[name] = to_json(tensor);
  return json;
}

Json to_json(const Manifest& manifest) {
  Json json = {{"format", kFormat},
               {"format_version", kVersion},
               {"progress", to_json(manifest.progress)},
               {"model", *manifest.model},
               {"settings", *manifest.settings},
               {"model_type", manifest.model_type},
               {"files", to_json(manifest.files)},
               {"headers", to_json(manifest.headers)},
               {"tensors", to_json(manifest.tensors)},
               {"optimizer", nullptr}};
  if (!manifest.rerun_state->is_null()) json["rerun_state_machine"] = *manifest.rerun_state;
  if (manifest.optimizer) json["optimizer"] = to_json(*manifest.optimizer);
  return json;
}

std::int64_t count(const Json& object, const char* key, const std::string& place) {
  const std::int64_t value = json_int(object, key, place);
  if (value < 0)
    throw_damaged_manifest(place, std::string("field '") + key + "' must not be negative",
                           std::to_string(value));
  return value;
}

/// Returns nullopt when the optimizer had no dynamic loss scale.
std::optional<LossScaleState> read_loss_scale(const Json& optimizer,
                                              const std::string& optimizer_place) {
  if (!optimizer.contains("loss_scale")) return std::nullopt;
  const Json& json = optimizer.at("loss_scale");
  const std::string place = optimizer_place + ": loss_scale";
  const LossScaleState state{.scale = json_double(json, "scale", place),
                             .growth_tracker = count(json, "growth_tracker", place),
                             .hysteresis_tracker = json_int(json, "hysteresis_tracker", place)};
  if (!(state.scale > 0))
    throw_damaged_manifest(place, "field 'scale' must be positive", std::to_string(state.scale));
  return state;
}

TrainingProgress read_progress(const Json& json, const std::string& source) {
  const std::string place = source + ": progress";
  return {.iteration = count(json, "iteration", place),
          .consumed_train_samples = count(json, "consumed_train_samples", place),
          .skipped_train_samples = count(json, "skipped_train_samples", place),
          .consumed_valid_samples = count(json, "consumed_valid_samples", place),
          .scheduler_num_steps = count(json, "scheduler_num_steps", place),
          .floating_point_operations = json_double(json, "floating_point_operations", place)};
}

Shape read_extents(const Json& object, const char* key, const std::string& place) {
  const Json& list = json_at(object, key, place);
  if (!list.is_array())
    throw_damaged_manifest(place, std::string("field '") + key + "' must be a list of integers");
  Shape shape;
  for (const Json& extent : list) {
    if (!extent.is_number_integer() ||
        (extent.is_number_unsigned() && extent.get<std::uint64_t>() > (std::uint64_t{1} << 62)) ||
        extent.get<std::int64_t>() < 0) {
      throw_damaged_manifest(
          place, std::string("field '") + key + "' must hold non-negative integers", extent.dump());
    }
    shape.push_back(extent.get<std::int64_t>());
  }
  return shape;
}

std::uint64_t read_checksum(const Json& json, const std::string& place) {
  const std::string text = json.is_string() ? json.get<std::string>() : std::string();
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw_damaged_manifest(place, "a checksum must be 16 hexadecimal digits", json.dump());
  return std::stoull(text, nullptr, 16);
}

Piece read_piece(const Json& json, const std::string& place) {
  Piece piece{
      .file = json_string(json, "file", place),
      .key = json_string(json, "key", place),
      .slice = slice_at(read_extents(json, "offset", place), read_extents(json, "shape", place)),
      .checksum = read_checksum(json_at(json, "xxh3", place), place)};
  if (piece.file.empty() || piece.file == ".." || piece.file.find('/') != std::string::npos)
    throw_damaged_manifest(place, "a piece's file must be a plain name", piece.file);
  return piece;
}

ManifestTensor read_tensor(const Json& json, const std::string& place) {
  ManifestTensor tensor{.shape = read_extents(json, "shape", place), .pieces = {}};
  const std::string kind = json_string(json, "kind", place),
                    type = json_string(json, "dtype", place);
  const auto found = std::ranges::find(kTensorKinds, kind, tensor_kind_name);
  if (found == std::end(kTensorKinds)) throw_damaged_manifest(place, "unknown kind", kind);
  tensor.kind = *found;
  const auto known = parse_safetensors_dtype(type);
  if (!known) throw_damaged_manifest(place, "unknown dtype", type);
  tensor.type = *known;
  const Json& pieces = json_at(json, "pieces", place);
  if (!pieces.is_array()) throw_damaged_manifest(place, "field 'pieces' must be a list");
  for (const Json& piece : pieces) tensor.pieces.push_back(read_piece(piece, place));
  return tensor;
}

std::string tiling_error(const ManifestTensor& tensor) {
  std::vector<TensorSlice> slices;
  for (const Piece& piece : tensor.pieces) slices.push_back(piece.slice);
  return tiling_error(tensor.shape, slices);
}

const Json& object_at(const Json& json, const char* key, const std::string& source) {
  const Json& value = json_at(json, key, source);
  if (!value.is_object())
    throw_damaged_manifest(source, std::string("field '") + key + "' must be an object");
  return value;
}

void read_headers(const Json& json, const std::string& source, Manifest& manifest) {
  for (const auto& [name, value] : object_at(json, "headers", source).items()) {
    manifest.headers[name] = read_checksum(value, source + ": header of '" + name + "'");
  }
}

void check_format(const Json& json, const std::string& source) {
  if (const std::string format = json_string(json, "format", source); format != kFormat)
    throw_damaged_manifest(source, "field 'format' must be " + std::string(kFormat), format);
  const std::int64_t version = json_int(json, "format_version", source);
  if (version != kVersion) {
    throw UserError({source + ": format_version " + std::to_string(version) + " is not supported",
                     "this program writes and reads version " + std::to_string(kVersion),
                     "use the version of the program that wrote the checkpoint"});
  }
}

void check_own_checksum(Json json, const std::string& source) {
  const std::uint64_t stored = read_checksum(json_at(json, "xxh3", source), source);
  json.erase("xxh3");
  if (checksum(json.dump()) != stored)
    throw_damaged_manifest(source, "its content does not match its own checksum (field 'xxh3')");
}

}  // namespace

const char* tensor_kind_name(TensorKind kind) {
  return kind == TensorKind::weight ? "weight" : kind == TensorKind::state ? "state" : "optimizer";
}

std::string manifest_text(const Manifest& manifest) {
  Json json = to_json(manifest);
  json["xxh3"] = checksum_hex(checksum(json.dump()));
  return json.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& source) {
  const Json json = parse_json_unique_keys(text, source);
  check_format(json, source);
  check_own_checksum(json, source);
  Manifest manifest;
  manifest.progress = read_progress(json_at(json, "progress", source), source);
  manifest.model = object_at(json, "model", source);
  manifest.settings = object_at(json, "settings", source);
  manifest.model_type = json_string(json, "model_type", source);
  if (json.contains("rerun_state_machine"))
    manifest.rerun_state = object_at(json, "rerun_state_machine", source);
  if (const Json& optimizer = json_at(json, "optimizer", source); !optimizer.is_null()) {
    const std::string place = source + ": optimizer";
    manifest.optimizer = OptimizerRecord{.name = json_string(optimizer, "name", place),
                                         .num_steps = count(optimizer, "num_steps", place),
                                         .loss_scale = read_loss_scale(optimizer, place)};
  }
  for (const auto& [name, value] : object_at(json, "files", source).items()) {
    if (name.empty() || name[0] == '/' || name.find("..") != std::string::npos)
      throw_damaged_manifest(source, "an auxiliary file must lie below the folder", name);
    manifest.files[name] = read_checksum(value, source + ": file '" + name + "'");
  }
  if (json.contains("headers")) read_headers(json, source, manifest);
  for (const auto& [name, value] : object_at(json, "tensors", source).items()) {
    const std::string place = source + ": tensor '" + name + "'";
    const ManifestTensor& tensor =
        manifest.tensors.emplace(name, read_tensor(value, place)).first->second;
    if (const std::string fault = tiling_error(tensor); !fault.empty())
      throw_damaged_manifest(place, fault);
  }
  return manifest;
}

std::string manifest_part_text(const Manifest& manifest) {
  return Json{{"headers", to_json(manifest.headers)}, {"tensors", to_json(manifest.tensors)}}
      .dump();
}

void merge_manifest_part(Manifest& manifest, const std::string& text, const std::string& source) {
  const Json json = parse_json_unique_keys(text, source);
  read_headers(json, source, manifest);
  for (const auto& [name, value] : object_at(json, "tensors", source).items()) {
    ManifestTensor part = read_tensor(value, source + ": tensor '" + name + "'");
    const auto [known, is_new] = manifest.tensors.try_emplace(name, part);
    if (!is_new) std::ranges::move(part.pieces, std::back_inserter(known->second.pieces));
  }
}

std::string tiling_error(const Manifest& manifest) {
  for (const auto& [name, tensor] : manifest.tensors) {
    if (const std::string fault = tiling_error(tensor); !fault.empty())
      return "tensor '" + name + "': " + fault;
  }
  return {};
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const fs::path path = folder / kManifestFile;
  return parse_manifest(read_file(path), path.string());
}

}  // namespace megatron
