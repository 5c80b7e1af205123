#include "megatron/checkpoint/hf_reader.h"

#include <algorithm>
#include <cstring>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/hf_directory.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/problems.h"
#include "megatron/config/resolve.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/hf/weight_transforms.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

TransformerConfig resolved(TransformerConfig model) {
  resolve(model);
  return model;
}

std::string place_of(const HfDirectory::Entry& entry) {
  return entry.file->path().string() + ": tensor '" + entry.tensor->name + "'";
}

}  // namespace

std::vector<WeightInfo> declared_weights(const ModelFamily& family,
                                         const TransformerConfig& model) {
  std::vector<WeightInfo> weights;
  const auto whole = family.make(resolved(model), Rank{}, {});
  whole->visit([&](Module& module) {
    for (const auto& parameter : module.parameters()) {
      if (parameter->spec().kind == ParameterKind::state) continue;
      weights.push_back({parameter->name(), parameter->sharding().global_shape});
    }
  });
  std::ranges::sort(weights, {}, &WeightInfo::name);
  return weights;
}

HfReader::HfReader(const std::filesystem::path& folder)
    : directory_(folder), model_(resolved(directory_.config().model)) {
  weights_ = declared_weights(family_of_model_type(config().model_type), model_);
  link();
}

HfReader::HfReader(const std::filesystem::path& folder, std::vector<WeightInfo> declared)
    : directory_(folder),
      model_(resolved(directory_.config().model)),
      weights_(std::move(declared)) {
  std::ranges::sort(weights_, {}, &WeightInfo::name);
  link();
}

void HfReader::link() {
  std::vector<std::string> names, missing, misshapen;
  for (const WeightInfo& info : weights_) names.push_back(info.name);
  const auto& tensors = directory_.tensors();
  const std::string embedding = hf_embedding_name(config().model_type),
                    output_layer(kHfOutputLayer);
  // safetensors.torch.save_model() writes tied tensors once, under the name that sorts first.
  const bool has_only_output_layer = !model_.untie_embeddings_and_output_weights &&
                                     !tensors.contains(embedding) && tensors.contains(output_layer);
  for (WeightMapping& link : map_weights(config().model_type, names, model_.moe.num_experts)) {
    if (tensors.contains(link.stacked)) link = {.ours = link.ours, .theirs = {link.stacked}};
    if (has_only_output_layer && link.theirs.front() == embedding) link.theirs = {output_layer};
    links_.emplace(link.ours, std::move(link));
  }
  for (WeightInfo& info : weights_) link_weight(info, missing, misshapen);
  Problems problems;
  const auto add = [&](const std::string& what, const std::vector<std::string>& found,
                       const std::string& fix) {
    if (!found.empty())
      problems.add({directory_.folder().string() + ": tensors that " + what,
                    std::to_string(found.size()) + name_lines(found), fix});
  };
  const std::string belongs = "check that config.json belongs to these weights";
  add("config.json asks for are missing", missing,
      belongs + ", and download the folder again if a file of it is missing");
  add("have other shapes than config.json says", misshapen, belongs);
  add("model_type '" + config().model_type + "' does not use", unused(),
      "check model_type in config.json; merge adapters and undo quantisation first");
  problems.throw_if_any();
}

/// Finds the tensors of a parameter and checks their shapes. The parameter takes their type, or
/// float32 when they differ in it.
void HfReader::link_weight(WeightInfo& info, std::vector<std::string>& missing,
                           std::vector<std::string>& misshapen) {
  const WeightMapping& link = links_.at(info.name);
  const std::vector<Shape> shapes = hf_shapes(link.transform, model_, info.shape);
  MEGATRON_CHECK(shapes.size() == link.theirs.size(), info.name, " is made of ", shapes.size(),
                 " tensors, the mapping names ", link.theirs.size());
  std::optional<at::ScalarType> type;
  for (std::size_t i = 0; i < link.theirs.size(); ++i) {
    used_.insert(link.theirs[i]);
    const auto found = directory_.tensors().find(link.theirs[i]);
    if (found == directory_.tensors().end()) {
      missing.push_back(link.theirs[i]);
      continue;
    }
    const StoredTensor& tensor = *found->second.tensor;
    if (tensor.shape != shapes[i]) {
      misshapen.push_back(place_of(found->second) + ": " + shape_text(tensor.shape) +
                          ", expected " + shape_text(shapes[i]));
    }
    const at::ScalarType own = to_scalar_type(tensor.type, place_of(found->second));
    type = type.value_or(own) == own ? own : at::kFloat;
  }
  info.type = type.value_or(info.type);
}

std::vector<std::string> HfReader::unused() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : directory_.tensors()) {
    if (used_.contains(name) || is_hf_buffer(config().model_type, name)) continue;
    if (name == kHfOutputLayer && !model_.untie_embeddings_and_output_weights) {
      if (repeats_embedding(entry)) continue;
      throw UserError(
          {place_of(entry) + " differs from the embedding although config.json ties them", "",
           "set tie_word_embeddings to false in config.json"});
    }
    names.push_back(entry.tensor->name);
  }
  return names;
}

bool HfReader::repeats_embedding(const HfDirectory::Entry& output_layer) const {
  const auto& embedding = directory_.tensors().at(hf_embedding_name(config().model_type));
  if (embedding.tensor->type != output_layer.tensor->type ||
      embedding.tensor->shape != output_layer.tensor->shape)
    return false;
  const auto left = embedding.file->bytes(*embedding.tensor),
             right = output_layer.file->bytes(*output_layer.tensor);
  return std::memcmp(left.data(), right.data(), left.size()) == 0;
}

at::Tensor HfReader::view(const std::string& their_name) const {
  const auto& entry = directory_.tensors().at(their_name);
  return view_tensor(*entry.file, *entry.tensor);
}

/// Copies the rows of each expert from its one tensor or from gate and up, so that only the experts
/// of the slice are read.
void HfReader::copy_experts(const WeightMapping& link, const TensorSlice& slice,
                            at::Tensor destination) {
  const Shape& from = slice.global_offset;
  const std::int64_t parts = link.transform == WeightTransform::experts_gate_up ? 2 : 1;
  for (std::int64_t expert = 0; expert < slice.shape[0]; ++expert) {
    for (std::int64_t part = 0; part < parts; ++part) {
      const auto index = static_cast<std::size_t>((from[0] + expert) * parts + part);
      const at::Tensor theirs = view(link.theirs[index]);
      const std::int64_t first = part * theirs.size(0);  // of its rows among the expert's
      const TensorSlice held = slice_at({first, 0}, theirs.sizes().vec());
      const auto common =
          intersect(held, slice_at({from[1], from[2]}, {slice.shape[1], slice.shape[2]}));
      if (!common) continue;
      const Shape to{common->global_offset[0] - from[1], common->global_offset[1] - from[2]};
      narrow_to(destination[expert], to, common->shape)
          .copy_(narrow_to(theirs, common->local_offset, common->shape));
    }
  }
}

void HfReader::copy_slice(const std::string& name, const TensorSlice& slice,
                          at::Tensor destination) {
  const WeightMapping& link = links_.at(name);
  if (link.transform == WeightTransform::experts ||
      link.transform == WeightTransform::experts_gate_up) {
    copy_experts(link, slice, std::move(destination));
    return;
  }
  if (name != last_name_) {
    std::vector<at::Tensor> theirs;
    for (const std::string& their_name : link.theirs) theirs.push_back(view(their_name));
    last_ = to_megatron(link.transform, model_, theirs);
    last_name_ = name;
  }
  destination.copy_(narrow_to(last_, slice.global_offset, slice.shape));
}

}  // namespace megatron
