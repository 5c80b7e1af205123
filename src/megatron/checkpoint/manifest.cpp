#include "megatron/checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

constexpr const char* kFormat = "megatron-checkpoint";
constexpr std::int64_t kVersion = 1;

[[noreturn]] void refuse(const std::string& what, const std::string& got = {}) {
  throw UserError({what, got, "the checkpoint is damaged: load another one"});
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
  Json json = {{"file", piece.file},
               {"key", piece.key},
               {"offset", piece.slice.global_offset},
               {"shape", piece.slice.shape},
               {"xxh3", checksum_hex(piece.checksum)}};
  for (const std::uint64_t block : piece.blocks) json["blocks"].push_back(checksum_hex(block));
  return json;
}

Json to_json(const ManifestTensor& tensor) {
  Json pieces = Json::array();
  for (const Piece& piece : tensor.pieces) pieces.push_back(to_json(piece));
  Json json = {{"kind", tensor_kind_name(tensor.kind)},
               {"dtype", std::string(safetensors_dtype_name(tensor.type))},
               {"shape", tensor.shape},
               {"pieces", pieces}};
  if (tensor.is_frozen) json["frozen"] = true;
  return json;
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
  if (!manifest.family.empty()) json["family"] = manifest.family;
  if (!manifest.rerun_state->is_null()) json["rerun_state_machine"] = *manifest.rerun_state;
  if (manifest.optimizer) json["optimizer"] = to_json(*manifest.optimizer);
  return json;
}

std::int64_t count(const JsonCursor& json) {
  const std::int64_t value = json.integer();
  if (value < 0) refuse(json.name() + " must not be negative", std::to_string(value));
  return value;
}

LossScaleState read_loss_scale(const JsonCursor& json) {
  const LossScaleState state{.scale = json["scale"].number(),
                             .growth_tracker = count(json["growth_tracker"]),
                             .hysteresis_tracker = json["hysteresis_tracker"].integer()};
  if (!(state.scale > 0))
    refuse(json["scale"].name() + " must be positive", std::to_string(state.scale));
  return state;
}

OptimizerRecord read_optimizer(const JsonCursor& json) {
  OptimizerRecord record{.name = json["name"].text(), .num_steps = count(json["num_steps"])};
  if (const auto scale = json.find("loss_scale")) record.loss_scale = read_loss_scale(*scale);
  return record;
}

TrainingProgress read_progress(const JsonCursor& json) {
  return {.iteration = count(json["iteration"]),
          .consumed_train_samples = count(json["consumed_train_samples"]),
          .skipped_train_samples = count(json["skipped_train_samples"]),
          .consumed_valid_samples = count(json["consumed_valid_samples"]),
          .scheduler_num_steps = count(json["scheduler_num_steps"]),
          .floating_point_operations = json["floating_point_operations"].number()};
}

Shape read_extents(const JsonCursor& json) {
  Shape shape;
  for (const Json& extent : json.array()) {
    if (!extent.is_number_integer() ||
        (extent.is_number_unsigned() && extent.get<std::uint64_t>() > (std::uint64_t{1} << 62)) ||
        extent.get<std::int64_t>() < 0) {
      refuse(json.name() + " must hold non-negative integers", extent.dump());
    }
    shape.push_back(extent.get<std::int64_t>());
  }
  return shape;
}

std::uint64_t read_checksum(const JsonCursor& json) {
  const std::string text = json->is_string() ? json.text() : std::string();
  if (text.size() != 16 || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    refuse(json.name() + ": a checksum must be 16 hexadecimal digits", json->dump());
  return std::stoull(text, nullptr, 16);
}

Piece read_piece(const JsonCursor& json) {
  Piece piece{.file = json["file"].text(),
              .key = json["key"].text(),
              .slice = slice_at(read_extents(json["offset"]), read_extents(json["shape"])),
              .checksum = read_checksum(json["xxh3"])};
  if (const auto blocks = json.find("blocks"))
    for (const JsonCursor& block : blocks->elements()) piece.blocks.push_back(read_checksum(block));
  if (piece.file.empty() || piece.file == ".." || piece.file.find('/') != std::string::npos)
    refuse(json.place() + ": a piece's file must be a plain name", piece.file);
  return piece;
}

ManifestTensor read_tensor(const JsonCursor& json) {
  ManifestTensor tensor{.shape = read_extents(json["shape"]), .pieces = {}};
  const std::string kind = json["kind"].text(), type = json["dtype"].text();
  const auto found = std::ranges::find(kTensorKinds, kind, tensor_kind_name);
  if (found == std::end(kTensorKinds)) refuse(json.place() + ": unknown kind", kind);
  tensor.kind = *found;
  tensor.is_frozen = json.find("frozen").has_value();
  const auto known = parse_safetensors_dtype(type);
  if (!known) refuse(json.place() + ": unknown dtype", type);
  tensor.type = *known;
  for (const JsonCursor& piece : json["pieces"].elements())
    tensor.pieces.push_back(read_piece(piece));
  return tensor;
}

std::string tiling_error(const ManifestTensor& tensor) {
  std::vector<TensorSlice> slices;
  for (const Piece& piece : tensor.pieces) slices.push_back(piece.slice);
  return tiling_error(tensor.shape, slices);
}

/// Reads the checksums of named files.
std::map<std::string, std::uint64_t> read_checksums(const JsonCursor& json) {
  std::map<std::string, std::uint64_t> checksums;
  for (const auto& [name, value] : json.object().items())
    checksums[name] = read_checksum(json[name]);
  return checksums;
}

/// Calls `use` with each name and cursor of the tensors.
template <class Use>
void for_each_tensor(const JsonCursor& json, const std::string& source, Use use) {
  for (const auto& [name, value] : json["tensors"].object().items())
    use(name, JsonCursor(value, source + ": tensor '" + name + "'"));
}

void check_format(const JsonCursor& json) {
  if (const std::string format = json["format"].text(); format != kFormat)
    refuse(json["format"].name() + " must be " + std::string(kFormat), format);
  const std::int64_t version = json["format_version"].integer();
  if (version != kVersion) {
    throw UserError(
        {json.place() + ": format_version " + std::to_string(version) + " is not supported",
         "this program writes and reads version " + std::to_string(kVersion),
         "use the version of the program that wrote the checkpoint"});
  }
}

void check_own_checksum(Json json, const std::string& source) {
  const std::uint64_t stored = read_checksum(JsonCursor(json, source)["xxh3"]);
  json.erase("xxh3");
  if (checksum(json.dump()) != stored)
    refuse(source + ": its content does not match its own checksum (field 'xxh3')");
}

Manifest read_manifest(const JsonCursor& json, const std::string& source) {
  Manifest manifest;
  manifest.progress = read_progress(json["progress"]);
  manifest.model = json["model"].object();
  manifest.settings = json["settings"].object();
  manifest.model_type = json["model_type"].text();
  if (const auto family = json.find("family")) manifest.family = family->text();
  manifest.files = read_checksums(json["files"]);
  if (const auto state = json.find("rerun_state_machine")) manifest.rerun_state = state->object();
  if (const JsonCursor optimizer = json["optimizer"]; !optimizer->is_null())
    manifest.optimizer = read_optimizer(optimizer);
  for (const auto& [name, value] : manifest.files) {
    if (name.empty() || name[0] == '/' || name.find("..") != std::string::npos)
      refuse(source + ": an auxiliary file must lie below the folder", name);
  }
  if (const auto headers = json.find("headers")) manifest.headers = read_checksums(*headers);
  for_each_tensor(json, source, [&](const std::string& name, const JsonCursor& tensor) {
    const auto read = manifest.tensors.emplace(name, read_tensor(tensor)).first;
    if (const std::string fault = tiling_error(read->second); !fault.empty())
      refuse(tensor.place() + ": " + fault);
  });
  return manifest;
}

}  // namespace

const char* tensor_kind_name(TensorKind kind) {
  return kind == TensorKind::weight ? "weight" : kind == TensorKind::state ? "state" : "optimizer";
}

Json fields_to_json(const FieldSet& fields, const void* object) {
  Json json = Json::object();
  for (const Field& field : fields.fields) json[field.name] = join_values(field.get(object));
  return json;
}

std::optional<std::vector<std::string>> saved_values(const Json& saved, const Field& field) {
  const auto found = saved.find(field.name);
  if (found == saved.end() || !found->is_string()) return std::nullopt;
  const std::string text = found->get<std::string>();
  if (text.empty() || is_none(text)) return std::nullopt;
  return field.is_list ? split_words(text) : std::vector{text};
}

void read_saved_fields(const Json& saved, const FieldSet& fields, void* object) {
  for (const Field& field : fields.fields) {
    try {
      if (const auto values = saved_values(saved, field)) assign(field, object, *values);
    } catch (const FieldError&) {
      continue;
    }
  }
}

void read_saved_settings(const Json& saved, Settings& settings) {
  read_saved_fields(saved, settings_table().set(), &settings);
}

std::string manifest_text(const Manifest& manifest) {
  Json json = to_json(manifest);
  json["xxh3"] = checksum_hex(checksum(json.dump()));
  return json.dump(1) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& source) try {
  const JsonCursor json(parse_json_unique_keys(text, source), source);
  check_format(json);
  check_own_checksum(*json, source);
  return read_manifest(json, source);
} catch (const UserError& error) {
  if (!error.parts().fix.empty()) throw;
  refuse(error.parts().what, error.parts().got);
}

std::string manifest_part_text(const Manifest& manifest) {
  return Json{{"headers", to_json(manifest.headers)}, {"tensors", to_json(manifest.tensors)}}
      .dump();
}

void merge_manifest_part(Manifest& manifest, const std::string& text, const std::string& source) {
  const JsonCursor json(parse_json_unique_keys(text, source), source);
  manifest.headers.merge(read_checksums(json["headers"]));
  for_each_tensor(json, source, [&](const std::string& name, const JsonCursor& tensor) {
    ManifestTensor part = read_tensor(tensor);
    const auto [known, is_new] = manifest.tensors.try_emplace(name, part);
    if (!is_new) std::ranges::move(part.pieces, std::back_inserter(known->second.pieces));
  });
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
