#include "megatron/checkpoint/inspect.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/abs.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/max.h>
#include <ATen/ops/sub.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/checkpoint/manifest_reader.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/checkpoint/weight_reader.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

Json tensor_row(const std::string& name, const char* kind, SafetensorsDtype type,
                const Shape& shape, std::size_t pieces) {
  const std::int64_t elements = num_elements(shape);
  return {{"name", name},
          {"kind", kind},
          {"dtype", std::string(safetensors_dtype_name(type))},
          {"shape", shape},
          {"elements", elements},
          {"bytes", static_cast<std::uint64_t>(elements) * element_size(type)},
          {"pieces", pieces}};
}

void add_manifest(const Manifest& manifest, Json& json) {
  json["iteration"] = manifest.progress.iteration;
  json["consumed_train_samples"] = manifest.progress.consumed_train_samples;
  json["consumed_valid_samples"] = manifest.progress.consumed_valid_samples;
  json["settings"] = *manifest.settings;
  if (manifest.optimizer)
    json["optimizer"] = {{"name", manifest.optimizer->name},
                         {"num_steps", manifest.optimizer->num_steps}};
  if (manifest.optimizer && manifest.optimizer->loss_scale)
    json["optimizer"]["loss_scale"] = manifest.optimizer->loss_scale->scale;
  for (const auto& [name, tensor] : manifest.tensors) {
    json["tensors"].push_back(tensor_row(name, tensor_kind_name(tensor.kind), tensor.type,
                                         tensor.shape, tensor.pieces.size()));
  }
}

void add_directory(const fs::path& folder, Json& json) {
  const HfDirectory directory(folder);
  for (const auto& [name, entry] : directory.tensors()) {
    json["tensors"].push_back(
        tensor_row(entry.tensor.name, "weight", entry.tensor.type, entry.tensor.shape, 1));
  }
}

Json files_of(const fs::path& folder) {
  if (!fs::is_directory(folder))
    return Json::array({{{"name", folder.filename().string()}, {"bytes", fs::file_size(folder)}}});
  std::set<std::pair<std::string, std::uint64_t>> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file())
      files.emplace(fs::relative(entry.path(), folder).string(), entry.file_size());
  }
  Json list = Json::array();
  for (const auto& [name, bytes] : files) list.push_back({{"name", name}, {"bytes", bytes}});
  return list;
}

std::uint64_t sum_of(const Json& tensors, const char* kind, const char* field) {
  std::uint64_t sum = 0;
  for (const Json& tensor : tensors)
    sum += tensor.at("kind") == kind ? tensor.at(field).get<std::uint64_t>() : 0;
  return sum;
}

std::string human_bytes(std::uint64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return format(unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

std::string line(const std::string& label, const std::string& value) {
  return label + std::string(label.size() < 18 ? 18 - label.size() : 1, ' ') + value + "\n";
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string tensor_table(const Json& tensors) {
  std::size_t name_width = 6, shape_width = 5;
  for (const Json& tensor : tensors) {
    name_width = std::max(name_width, tensor.at("name").get<std::string>().size());
    shape_width = std::max(shape_width, tensor.at("shape").dump().size());
  }
  std::string text = "\n" + padded("tensor", name_width) + "  kind       dtype  " +
                     padded("shape", shape_width) + "  pieces\n";
  for (const Json& tensor : tensors) {
    text += padded(tensor.at("name").get<std::string>(), name_width) + "  " +
            padded(tensor.at("kind").get<std::string>(), 9) + "  " +
            padded(tensor.at("dtype").get<std::string>(), 5) + "  " +
            padded(tensor.at("shape").dump(), shape_width) + "  " +
            std::to_string(tensor.at("pieces").get<std::size_t>()) + "\n";
  }
  return text;
}

std::string model_line(const Json& model) {
  return std::to_string(model.at("num_layers").get<std::int64_t>()) + " layers, hidden " +
         std::to_string(model.at("hidden_size").get<std::int64_t>()) + ", " +
         std::to_string(model.at("num_attention_heads").get<std::int64_t>()) + " heads in " +
         std::to_string(model.at("num_query_groups").get<std::int64_t>()) + " query groups, ffn " +
         std::to_string(model.at("ffn_hidden_size").get<std::int64_t>()) + ", vocabulary " +
         std::to_string(model.at("vocab_size").get<std::int64_t>());
}

double largest_difference(const at::Tensor& left, const at::Tensor& right) {
  if (left.numel() == 0) return 0;
  const at::Tensor a = left.to(at::kDouble), b = right.to(at::kDouble);
  const at::Tensor distance = at::abs(at::sub(a, b));
  const at::Tensor same = at::eq(a, b).logical_or(at::isnan(a).logical_and(at::isnan(b)));
  return at::max(distance.masked_fill(same, 0)).item<double>();
}

WeightDifference compare(const std::string& name, WeightReader& left, WeightReader& right) {
  const WeightInfo *a = left.find(name), *b = right.find(name);
  if (a == nullptr || b == nullptr)
    return {name, a == nullptr ? "only in the second" : "only in the first"};
  if (a->shape != b->shape)
    return {name, "shapes " + shape_text(a->shape) + " and " + shape_text(b->shape)};
  return {name, "", largest_difference(left.read(name), right.read(name))};
}

/// The errors found in one folder.
struct FolderErrors {
  std::vector<std::string> damage;  ///< bytes that are missing or were changed
  std::vector<std::string> values;  ///< intact tensors with values that are not finite
};

/// Runs `check` and appends the text of a UserError that it throws.
template <class Check>
void collect(std::vector<std::string>& errors, Check check) {
  try {
    check();
  } catch (const UserError& error) {
    errors.push_back(error.parts().problem());
  }
}

/// Checks that the values of an intact piece are finite.
void check_values(const std::string& place, const at::Tensor& values, FolderErrors& errors) {
  const std::string fault = non_finite_error(place, values);
  if (!fault.empty()) errors.values.push_back(fault);
}

void verify_pieces(ManifestReader& reader, FolderErrors& all) {
  std::vector<std::string>& errors = all.damage;
  std::set<std::string> bad_files;
  std::map<std::string, std::set<std::string>> keys;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    for (const Piece& piece : tensor.pieces) {
      if (bad_files.contains(piece.file)) continue;
      const std::size_t before = errors.size();
      collect(errors, [&] { reader.file(piece.file); });
      if (errors.size() > before) {
        bad_files.insert(piece.file);
        continue;
      }
      keys[piece.file].insert(piece.key);
      collect(errors, [&] { check_values(name, reader.piece_tensor(name, tensor, piece), all); });
    }
  }
  for (const auto& [file, known] : keys) {
    for (const StoredTensor& stored : reader.file(file).tensors()) {
      if (!known.contains(stored.name))
        errors.push_back(reader.file(file).path().string() + ": tensor '" + stored.name +
                         "' is not in the manifest");
    }
  }
}

void verify_auxiliary_files(const fs::path& folder, const Manifest& manifest,
                            std::vector<std::string>& errors) {
  for (const auto& [name, expected] : manifest.files) {
    collect(errors, [&] {
      if (checksum(read_file(folder / name)) != expected)
        throw UserError((folder / name).string() + ": checksum does not match");
    });
  }
}

FolderErrors find_errors(const std::filesystem::path& folder) {
  FolderErrors errors;
  collect(errors.damage, [&] {
    ManifestReader reader(folder);
    verify_pieces(reader, errors);
    verify_auxiliary_files(folder, reader.manifest(), errors.damage);
  });
  return errors;
}

FolderErrors find_foreign_errors(const std::filesystem::path& folder) {
  FolderErrors errors;
  collect(errors.damage, [&] {
    ManifestReader reader(folder,
                          open_checkpoint(folder, CheckpointSource::Kind::megatron).manifest);
    for (const auto& [name, tensor] : reader.manifest().tensors)
      for (const Piece& piece : tensor.pieces)
        collect(errors.damage,
                [&] { check_values(name, reader.piece_tensor(name, tensor, piece), errors); });
  });
  return errors;
}

FolderErrors find_hf_errors(const std::filesystem::path& folder) {
  FolderErrors errors;
  collect(errors.damage, [&] {
    HfReader reader(folder);
    for (const WeightInfo& info : reader.weights())
      check_values(info.name, reader.read(info.name), errors);
  });
  return errors;
}

}  // namespace

Json inspect_checkpoint(const std::filesystem::path& root) {
  const CheckpointSource source = require_checkpoint(root);
  const bool ours = source.kind == CheckpointSource::Kind::megatron;
  Json json = {{"folder", source.folder.string()},
               {"format", ours ? "megatron" : "hf"},
               {"release", source.is_release},
               {"model_type", source.model_type},
               {"model", architecture_to_json(source.model)},
               {"tensors", Json::array()}};
  ours ? add_manifest(*source.manifest, json) : add_directory(source.folder, json);
  if (ours && !source.notes.empty()) json["notes"] = source.notes;
  json["files"] = files_of(source.folder);
  json["parameters"] = sum_of(json["tensors"], "weight", "elements");
  json["weight_bytes"] = sum_of(json["tensors"], "weight", "bytes");
  json["optimizer_bytes"] = sum_of(json["tensors"], "optimizer", "bytes");
  return json;
}

std::string inspection_text(const Json& json) {
  const bool ours = json.at("format") == "megatron";
  std::string text = line("folder", json.at("folder").get<std::string>());
  text += line("format", ours ? (json.at("release").get<bool>() ? "megatron (release: weights only)"
                                                                : "megatron")
                              : "Hugging Face");
  for (const Json& note : json.value("notes", Json::array())) text += line("note", note);
  if (const auto type = json.at("model_type").get<std::string>(); !type.empty())
    text += line("model_type", type);
  if (ours && !json.at("release").get<bool>()) {
    text += line("iteration", std::to_string(json.at("iteration").get<std::int64_t>()));
    text += line("consumed samples",
                 std::to_string(json.at("consumed_train_samples").get<std::int64_t>()));
  }
  text += line("model", model_line(json.at("model")));
  text += line("parameters", std::to_string(json.at("parameters").get<std::uint64_t>()) + " (" +
                                 human_bytes(json.at("weight_bytes").get<std::uint64_t>()) + ")");
  if (json.contains("optimizer")) {
    text +=
        line("optimizer",
             json.at("optimizer").at("name").get<std::string>() + " after " +
                 std::to_string(json.at("optimizer").at("num_steps").get<std::int64_t>()) +
                 " steps (" + human_bytes(json.at("optimizer_bytes").get<std::uint64_t>()) + ")");
    if (const auto& optimizer = json.at("optimizer"); optimizer.contains("loss_scale"))
      text += line("loss scale", optimizer.at("loss_scale").dump());
  }
  for (const Json& file : json.at("files"))
    text += line("file", file.at("name").get<std::string>() + " (" +
                             human_bytes(file.at("bytes").get<std::uint64_t>()) + ")");
  return text + tensor_table(json.at("tensors"));
}

std::vector<WeightDifference> diff_checkpoints(const std::filesystem::path& left,
                                               const std::filesystem::path& right) {
  const auto a = open_weights(require_checkpoint(left)),
             b = open_weights(require_checkpoint(right));
  std::set<std::string> names;
  for (const WeightReader* reader : {a.get(), b.get()}) {
    for (const WeightInfo& info : reader->weights()) names.insert(info.name);
    for (const WeightInfo& info : reader->states()) names.insert(info.name);
  }
  std::vector<WeightDifference> differences;
  for (const std::string& name : names) differences.push_back(compare(name, *a, *b));
  return differences;
}

std::string difference_text(const std::vector<WeightDifference>& differences) {
  std::string text;
  std::size_t count = 0;
  double largest = 0;
  for (const WeightDifference& difference : differences) {
    if (difference.remark.empty() && difference.largest == 0) continue;
    ++count;
    text += difference.name + "  " +
            (difference.remark.empty() ? format("%.6e", difference.largest) : difference.remark) +
            "\n";
    if (!(difference.largest <= largest)) largest = difference.largest;
  }
  return text + format("%zu of %zu tensors differ; largest difference %.6e\n", count,
                       differences.size(), largest);
}

std::vector<std::string> verify_folder(const std::filesystem::path& folder) {
  FolderErrors errors = find_errors(folder);
  errors.damage.insert(errors.damage.end(), errors.values.begin(), errors.values.end());
  return errors.damage;
}

void verify_checkpoints(const std::filesystem::path& root, bool all, std::ostream& out) {
  if (!fs::is_directory(root) && !looks_like_hf_directory(root))
    throw UserError({root.string() + ": is not a folder", "", "check the path"});
  std::vector<fs::path> folders;
  const bool is_folder = fs::is_directory(root);
  const auto foreign = is_folder ? find_foreign_folder(root, std::nullopt) : std::nullopt;
  if (foreign) {
    folders.push_back(*foreign);
  } else if (is_folder && all) {
    folders = all_checkpoint_folders(root);
  } else if (const auto latest =
                 is_folder ? find_checkpoint_folder(root, std::nullopt) : std::nullopt) {
    folders.push_back(*latest);
  }
  const bool is_hf = folders.empty() && looks_like_hf_directory(root);
  if (is_hf) folders.push_back(root);
  if (folders.empty())
    throw UserError({root.string() + ": there is no checkpoint", "",
                     "give the folder that --save wrote, or one with config.json and safetensors"});
  std::string damage, values;
  for (const fs::path& folder : folders) {
    const FolderErrors errors = is_hf     ? find_hf_errors(folder)
                                : foreign ? find_foreign_errors(folder)
                                          : find_errors(folder);
    const std::string whole = is_hf     ? "complete (a Hugging Face folder has no checksums)"
                              : foreign ? "complete (Megatron-LM and DeepSpeed write no checksums)"
                                        : "whole";
    const bool is_whole = errors.damage.empty();
    out << folder.string() << ": " << (is_whole ? whole : "damaged")
        << (errors.values.empty() ? ""
            : is_whole            ? ", but not finite"
                                  : ", and not finite")
        << "\n";
    for (const std::string& fault : errors.damage) damage += "\n  " + fault;
    if (!errors.values.empty())
      values += "\n  " + folder.string() + ": " + std::to_string(errors.values.size()) +
                name_lines(errors.values);
  }
  const std::string fix = is_hf
                              ? "download the folder again"
                              : "copy the folder again, or load another iteration with --ckpt-step";
  if (!damage.empty())
    throw UserError({"damaged checkpoint",
                     damage + (values.empty() ? "" : "\n  tensors that are not finite" + values),
                     fix});
  if (!values.empty())
    throw UserError(
        {"tensors that are not finite", values,
         is_hf ? fix : "load an iteration from before the run diverged, with --ckpt-step"});
}

}  // namespace megatron
