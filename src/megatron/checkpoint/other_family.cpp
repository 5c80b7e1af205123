#include "megatron/checkpoint/other_family.h"

#include <utility>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/name_table.h"

namespace megatron {
namespace {

std::vector<LayerKind> kinds_of(const TransformerConfig& model) {
  std::vector<LayerKind> kinds;
  for (std::int64_t i = 0; i < model.num_layers; ++i) kinds.push_back(model.kind(i));
  return kinds;
}

}  // namespace

CheckpointSource in_family(CheckpointSource source, const std::string& family) {
  const std::string place =
      source.folder.string() + ": holds a model of the family " + source.family + ", not " + family;
  if (!source.manifest)
    throw UserError({place, "", "convert it first: `megatron convert --format megatron`"});
  TransformerConfig model = source.model;
  if (family == "hybrid")
    split_blocks(model);
  else if (!pair_blocks(model) && !model.hybrid_layer_pattern.empty())
    throw UserError({place, "its layers are not pairs of attention and a feed-forward block",
                     "train hybrid from it"});
  const NameTable table = name_table(kinds_of(source.model), kinds_of(model));
  Manifest manifest = *source.manifest;
  manifest.optimizer.reset();
  manifest.tensors.clear();
  const std::string main = kMainParameterPrefix;
  for (const auto& [name, tensor] : source.manifest->tensors) {
    if (name.starts_with(main))
      manifest.tensors[main + translate_name(table, name.substr(main.size()))] = tensor;
    else if (tensor.kind != TensorKind::optimizer)
      manifest.tensors[translate_name(table, name)] = tensor;
  }
  source.manifest = std::make_shared<const Manifest>(std::move(manifest));
  source.model = std::move(model);
  source.family = family;
  source.model_type.clear();
  return source;
}

}  // namespace megatron
