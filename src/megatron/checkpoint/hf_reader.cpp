#include "megatron/checkpoint/hf_reader.h"

#include <algorithm>
#include <cstring>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/config/resolve.h"
#include "megatron/models/hf/weight_transforms.h"

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

void HfReader::link() {
  std::vector<std::string> names, missing;
  for (const WeightInfo& info : weights_) names.push_back(info.name);
  for (WeightMapping& link : map_weights(config().model_type, names))
    links_.emplace(link.ours, std::move(link));
  std::map<std::string, const WeightMapping*> users;
  for (WeightInfo& info : weights_) {
    const WeightMapping& link = links_.at(info.name);
    const std::vector<Shape> shapes = hf_shapes(link.transform, model_, info.shape);
    for (std::size_t i = 0; i < link.theirs.size(); ++i) {
      const auto found = directory_.tensors().find(link.theirs[i]);
      users.emplace(link.theirs[i], &link);
      if (found == directory_.tensors().end()) {
        missing.push_back(link.theirs[i]);
        continue;
      }
      const StoredTensor& tensor = *found->second.tensor;
      if (tensor.shape != shapes[i]) {
        throw UserError({place_of(found->second) + " has a shape that differs from config.json",
                         shape_text(tensor.shape) + ", expected " + shape_text(shapes[i]),
                         "check that config.json belongs to these weights"});
      }
      info.type = to_scalar_type(tensor.type, place_of(found->second));
    }
  }
  require_no_names(directory_.folder().string() + ": tensors that config.json asks for are missing",
                   missing,
                   "check that config.json belongs to these weights, and download the folder again "
                   "if a file of it is missing");
  check_unused(users);
}

void HfReader::check_unused(const std::map<std::string, const WeightMapping*>& users) const {
  std::vector<std::string> unused;
  for (const auto& [name, entry] : directory_.tensors()) {
    if (users.contains(name) || is_hf_buffer(config().model_type, name)) continue;
    if (name == kHfOutputLayer && !model_.untie_embeddings_and_output_weights) {
      if (repeats_embedding(entry)) continue;
      throw UserError(
          {place_of(entry) + " differs from the embedding although config.json ties them", "",
           "set tie_word_embeddings to false in config.json"});
    }
    unused.push_back(entry.tensor->name);
  }
  require_no_names(directory_.folder().string() + ": tensors that model_type '" +
                       config().model_type + "' does not use",
                   unused,
                   "check model_type in config.json; merge adapters and undo quantisation first");
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

void HfReader::copy_slice(const std::string& name, const TensorSlice& slice,
                          at::Tensor destination) {
  if (name != last_name_) {
    const WeightMapping& link = links_.at(name);
    std::vector<at::Tensor> theirs;
    for (const std::string& their_name : link.theirs) {
      const auto& entry = directory_.tensors().at(their_name);
      theirs.push_back(view_tensor(*entry.file, *entry.tensor));
    }
    last_ = to_megatron(link.transform, model_, theirs);
    last_name_ = name;
  }
  destination.copy_(narrow_to(last_, slice.global_offset, slice.shape));
}

}  // namespace megatron
