#include "megatron/checkpoint/hf_writer.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/checkpoint/stale_temporaries.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/hf/weight_map.h"
#include "megatron/models/hf/weight_transforms.h"

namespace megatron {
namespace {

/// One Hugging Face tensor: part `part` of a weight mapping.
struct ExportTensor {
  TensorHeader header;
  const WeightMapping* link;
  std::size_t part;
};

struct ExportPlan {
  std::string model_type;
  Json config;
  std::vector<WeightMapping> links;
  at::ScalarType type = at::kFloat;
  std::vector<std::vector<ExportTensor>> files;
  std::uint64_t total_bytes = 0;
};

at::ScalarType common_type(const WeightReader& reader) {
  const auto& weights = reader.weights();
  MEGATRON_CHECK(!weights.empty(), "there are no weights to export");
  for (const WeightInfo& info : weights) {
    if (info.type != weights.front().type) return at::kFloat;
  }
  return weights.front().type;
}

/// Writes the ids of special tokens to `config`: those of the source's config.json, null too, even
/// if it is of another family, else the tokenizer's.
void write_token_ids(const Json& original, const TokenIds& ids, Json& config) {
  const std::pair<const char*, std::optional<std::int64_t>> keys[] = {
      {"bos_token_id", ids.bos}, {"eos_token_id", ids.eos}, {"pad_token_id", ids.pad}};
  for (const auto& [key, id] : keys) {
    if (original.contains(key)) {
      config[key] = original.at(key);
    } else if (id) {
      config[key] = *id;
    }
  }
}

void choose_family(const WeightReader& reader, const HfExport& request, ExportPlan& plan) {
  std::vector<std::string> names, families;
  for (const WeightInfo& info : reader.weights()) names.push_back(info.name);
  if (!request.model_type.empty()) {
    families.push_back(request.model_type);
  } else {
    for (const std::string_view type : request.model_types) families.emplace_back(type);
  }
  const auto original = request.auxiliary_files.find("config.json");
  const Json original_json = original != request.auxiliary_files.end()
                                 ? parse_json(original->second, "the config.json of the source")
                                 : Json();
  std::string reasons;
  for (const std::string& family : families) {
    try {
      plan.links = map_weights(family, names, request.model.moe.num_experts);
      plan.config = make_hf_config(request.model, family, dtype_name(plan.type),
                                   original_json.is_object() ? &original_json : nullptr);
      plan.model_type = family;
      write_token_ids(original_json, request.ids, plan.config);
      return;
    } catch (const UserError& error) {
      if (families.size() == 1) throw;
      reasons += "\n  " + std::string(error.what());
    }
  }
  throw UserError(
      {"no Hugging Face family can hold this model", reasons, "keep it in --format megatron"});
}

void plan_files(const WeightReader& reader, const HfExport& request, ExportPlan& plan) {
  TransformerConfig model = request.model;
  resolve(model);
  std::uint64_t used = 0;
  for (const WeightMapping& link : plan.links) {
    const std::vector<Shape> shapes =
        hf_shapes(link.transform, model, reader.find(link.ours)->shape);
    for (std::size_t part = 0; part < shapes.size(); ++part) {
      ExportTensor tensor{
          {link.theirs[part], to_safetensors_dtype(plan.type), shapes[part]}, &link, part};
      const std::uint64_t size = tensor.header.num_bytes();
      if (plan.files.empty() || used + size > request.max_shard_bytes) {
        plan.files.emplace_back();
        used = 0;
      }
      used += size;
      plan.total_bytes += size;
      plan.files.back().push_back(std::move(tensor));
    }
  }
}

std::string hf_shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

/// Converts one weight mapping at a time and caches its parts, which must be read consecutively.
class LinkConverter {
 public:
  LinkConverter(WeightReader& reader, TransformerConfig model, at::ScalarType type)
      : reader_(reader), model_(std::move(model)), type_(type) {
    resolve(model_);
  }
  at::Tensor convert(const ExportTensor& tensor) {
    if (tensor.link != last_link_) {
      last_ = to_hf(tensor.link->transform, model_, reader_.read(tensor.link->ours));
      last_link_ = tensor.link;
    }
    return contiguous_cpu(last_[tensor.part].to(type_));
  }

 private:
  WeightReader& reader_;
  TransformerConfig model_;
  at::ScalarType type_;
  const WeightMapping* last_link_ = nullptr;
  std::vector<at::Tensor> last_;
};

void write_weights(WeightReader& reader, const HfExport& request, const ExportPlan& plan,
                   const fs::path& folder) {
  LinkConverter converter(reader, request.model, plan.type);
  Json weight_map = Json::object();
  for (std::size_t index = 0; index < plan.files.size(); ++index) {
    const std::string name = hf_shard_name(index, plan.files.size());
    std::vector<TensorHeader> headers;
    for (const ExportTensor& tensor : plan.files[index]) headers.push_back(tensor.header);
    SafetensorsWriter writer(folder / name, std::move(headers), {{"format", "pt"}});
    for (const ExportTensor& tensor : plan.files[index]) {
      writer.write(tensor_bytes(converter.convert(tensor)));
      weight_map[tensor.header.name] = name;
    }
    writer.close();
  }
  if (plan.files.size() == 1) return;
  const Json index = {{"metadata", {{"total_size", plan.total_bytes}}}, {"weight_map", weight_map}};
  write_file(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace

void write_hf_directory(WeightReader& reader, const HfExport& request,
                        const std::filesystem::path& folder) {
  require_empty_folder(folder);
  ExportPlan plan;
  plan.type = request.dtype.value_or(common_type(reader));
  choose_family(reader, request, plan);
  plan_files(reader, request, plan);
  const fs::path parent = fs::absolute(folder).lexically_normal().parent_path();
  megatron::create_directories(parent);
  remove_stale_temporaries_of(fs::absolute(folder).lexically_normal());
  require_free_space(parent, plan.total_bytes);
  PendingFolder pending(folder);
  write_weights(reader, request, plan, pending.path());
  for (const auto& [name, text] : request.auxiliary_files) {
    if (name != "config.json") write_file(pending.path() / name, text);
  }
  write_file(pending.path() / "config.json", plan.config.dump(2) + "\n");
  pending.commit();
}

}  // namespace megatron
