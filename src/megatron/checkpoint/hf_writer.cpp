#include "megatron/checkpoint/hf_writer.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"
#include "megatron/checkpoint/gguf/gguf_model.h"
#include "megatron/checkpoint/hf_reader.h"
#include "megatron/checkpoint/pending_folder.h"
#include "megatron/checkpoint/safetensors.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/hf/weight_map.h"

namespace megatron {
namespace {

/// One Hugging Face tensor: a part of the weight `ours`.
struct ExportTensor {
  TensorHeader header;
  std::string ours;
  TensorPart part;
  at::ScalarType type;
};

struct ExportPlan {
  const HfFamily* family = nullptr;
  Json config;
  std::vector<WeightMapping> links;  ///< of weights, then of states of layers
  std::size_t num_weights = 0;
  std::map<std::string, Sharding> shardings = {};  ///< of our parameters
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

/// Writes the ids of special tokens to `config` unless the family's rows have done so: those of the
/// source's config.json, null too, even if it is of another family, else the tokenizer's.
void write_token_ids(const Json& original, const TokenIds& ids, Json& config) {
  std::vector<std::pair<const char*, std::optional<std::int64_t>>> keys = {
      {"bos_token_id", ids.bos}, {"eos_token_id", ids.eos}, {"pad_token_id", ids.pad}};
  if (config.value("is_encoder_decoder", false))
    keys.emplace_back("decoder_start_token_id", ids.decoder_start.value_or(0));
  for (const auto& [key, id] : keys) {
    if (config.contains(key) && !config.at(key).is_null()) continue;
    if (original.contains(key)) {
      config[key] = original.at(key);
    } else if (id) {
      config[key] = *id;
    }
  }
}

/// A family that cannot hold the model, with how far it is from it.
struct RefusedFamily {
  std::size_t num_missing = 0;  ///< weights that it has no tensors for
  std::size_t num_members = 0;  ///< members of the architecture that it cannot express
  std::string model_type, reason;
};

/// Returns why the nearest family cannot hold the model, and the names of the others.
std::string refusal_text(std::vector<RefusedFamily> families) {
  if (families.empty()) return "";
  std::ranges::stable_sort(families, {}, [](const RefusedFamily& family) {
    return std::pair(family.num_missing, family.num_members);
  });
  const std::vector<RefusedFamily> others(families.begin() + 1, families.end());
  return "\n  " + families.front().reason +
         "\n  further from it: " + joined_text(others, ", ", &RefusedFamily::model_type);
}

void choose_family(const WeightReader& reader, const HfExport& request, ExportPlan& plan) {
  std::vector<std::string> names;
  for (const WeightInfo& info : reader.weights()) names.push_back(info.name);
  plan.num_weights = names.size();
  std::vector<const HfFamily*> families;
  for (const HfFamily& family : hf_families())
    if (family.network == request.network->name &&
        (request.model_type.empty() || family.model_type == request.model_type))
      families.push_back(&family);
  const auto original = request.auxiliary_files.find("config.json");
  const Json original_json = original != request.auxiliary_files.end()
                                 ? parse_python_json(original->second, "the source's config.json")
                                 : Json();
  std::vector<RefusedFamily> refused;
  for (const HfFamily* family : families) {
    RefusedFamily refusal{.model_type = family->model_type};
    try {
      std::vector<std::string> all = names;
      for (const WeightInfo& info : reader.states())
        if (has_hf_tensor(*family, info.name)) all.push_back(info.name);
      plan.links = map_weights(*family, all, request.model.moe.num_experts,
                               {request.model.num_layers, request.model.mtp_num_layers,
                                request.model.gated_linear_unit, &request.model});
      for (WeightMapping& link : plan.links)
        if (request.model.mtp_num_layers > 0)  // transformers makes the other copies itself
          link.theirs.insert(link.theirs.end(), link.copies.begin(), link.copies.end());
      plan.config =
          make_hf_config(request.model, family->model_type, dtype_name(plan.type),
                         original_json.is_object() && !request.is_gguf ? &original_json : nullptr);
      if (request.is_gguf) require_gguf_model(request.model, plan.config, plan.links);
      plan.family = family;
      write_token_ids(original_json, request.ids, plan.config);
      return;
    } catch (const HfMismatch& error) {
      if (families.size() == 1) throw;
      refusal.num_members = error.num_members;
      refusal.reason = error.parts().problem();
    } catch (const UserError& error) {
      if (families.size() == 1) throw;
      const auto is_missing = [&](const std::string& name) {
        return !has_hf_tensor(*family, name);
      };
      refusal.num_missing = std::max<std::size_t>(1, std::ranges::count_if(names, is_missing));
      refusal.reason = error.parts().problem();
    }
    refused.push_back(std::move(refusal));
  }
  throw UserError({"no Hugging Face family can hold this model", refusal_text(std::move(refused)),
                   "keep it in --format megatron; --hf-model-type NAME says why another family "
                   "cannot hold it"});
}

void plan_files(const HfExport& request, ExportPlan& plan) {
  plan.shardings = declared_shardings(*request.network, request.model);
  plan.shardings.merge(declared_shardings(*request.network, request.model, /*of_states=*/true));
  std::uint64_t used = 0;
  for (std::size_t i = 0; i < plan.links.size(); ++i) {
    const WeightMapping& link = plan.links[i];
    const at::ScalarType type = i < plan.num_weights ? plan.type : at::kFloat;
    for (const HfTensor& theirs : link.theirs) {
      ExportTensor tensor{{theirs.name, to_safetensors_dtype(type),
                           theirs.part.shape(plan.shardings.at(link.ours))},
                          link.ours,
                          theirs.part,
                          type};
      const std::uint64_t size = tensor.header.num_bytes();
      if (plan.files.empty() || (!request.is_gguf && used + size > request.max_shard_bytes)) {
        plan.files.emplace_back();
        used = 0;
      }
      used += size;
      plan.total_bytes += size;
      plan.files.back().push_back(std::move(tensor));
    }
  }
  // The writer takes larger element types first.
  for (std::vector<ExportTensor>& file : plan.files)
    std::ranges::stable_sort(file, std::ranges::greater{}, [](const ExportTensor& tensor) {
      return element_size(tensor.header.type);
    });
}

std::string hf_shard_name(std::size_t index, std::size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", index + 1, count);
  return name;
}

/// Returns a function that cuts tensors of the plan from the weights. It keeps the last weight, as
/// the tensors of one follow each other.
auto make_cutter(WeightReader& reader, const ExportPlan& plan) {
  return [&, name = std::string(), last = at::Tensor()](const ExportTensor& tensor) mutable {
    if (tensor.ours != name) last = reader.read(name = tensor.ours);
    return tensor.part.cut(last, plan.shardings.at(tensor.ours)).to(tensor.type);
  };
}

void write_weights(WeightReader& reader, const ExportPlan& plan, const fs::path& folder) {
  auto cut = make_cutter(reader, plan);
  Json weight_map = Json::object();
  for (std::size_t index = 0; index < plan.files.size(); ++index) {
    const std::string name = hf_shard_name(index, plan.files.size());
    std::vector<TensorHeader> headers;
    for (const ExportTensor& tensor : plan.files[index]) headers.push_back(tensor.header);
    SafetensorsWriter writer(folder / name, std::move(headers), {{"format", "pt"}});
    for (const ExportTensor& tensor : plan.files[index]) {
      writer.write(tensor_bytes(contiguous_cpu(cut(tensor))));
      weight_map[tensor.header.name] = name;
    }
    writer.close();
  }
  if (plan.files.size() == 1) return;
  const Json index = {{"metadata", {{"total_size", plan.total_bytes}}}, {"weight_map", weight_map}};
  write_file(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

std::vector<std::string> write_gguf_file(WeightReader& reader, const ExportPlan& plan, bool is_q8_0,
                                         const fs::path& folder) {
  const std::vector<ExportTensor>& tensors = plan.files.at(0);
  GgufExport model{.config = plan.config,
                   .type = is_q8_0                      ? kGgufQ80
                           : plan.type == at::kHalf     ? kGgufF16
                           : plan.type == at::kBFloat16 ? kGgufBf16
                                                        : kGgufF32,
                   .read = [&, cut = make_cutter(reader, plan)](std::size_t i) mutable {
                     return cut(tensors[i]);
                   }};
  for (const ExportTensor& tensor : tensors) model.tensors.push_back(tensor.header);
  return write_gguf(model, folder);
}

}  // namespace

std::vector<std::string> write_hf_directory(WeightReader& reader, const HfExport& request,
                                            const std::filesystem::path& folder) {
  ExportPlan plan;
  plan.type = request.dtype.value_or(common_type(reader));
  choose_family(reader, request, plan);
  plan_files(request, plan);
  PendingFolder pending = begin_new_folder(folder, plan.total_bytes);
  for (const auto& [name, text] : request.auxiliary_files) {
    if (name != "config.json") write_file(pending.path() / name, text);
  }
  std::vector<std::string> notes;
  if (request.is_gguf) {
    notes = write_gguf_file(reader, plan, request.is_q8_0, pending.path());
  } else {
    write_weights(reader, plan, pending.path());
    write_file(pending.path() / "config.json", plan.config.dump(2) + "\n");
  }
  pending.commit();
  return notes;
}

}  // namespace megatron
