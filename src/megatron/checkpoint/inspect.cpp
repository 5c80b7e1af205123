#include "megatron/checkpoint/inspect.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "megatron/base/files.h"
#include "megatron/base/format.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/manifest.h"
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
        tensor_row(entry.tensor->name, "weight", entry.tensor->type, entry.tensor->shape, 1));
  }
}

Json files_of(const fs::path& folder) {
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

}  // namespace megatron
