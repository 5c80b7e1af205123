#include "megatron/models/model.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <set>

#include "megatron/base/error.h"
#include "megatron/config/activation_plan.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/zero_stage.h"
#include "megatron/nn/moe/moe_layer.h"
#include "megatron/parallel/rank.h"

namespace megatron {

StepOutput Model::forward_step(const Microbatch& microbatch, bool training) {
  StageOutput output = forward_chunk(0, {.microbatch = microbatch, .training = training}, {});
  MEGATRON_CHECK(output.loss.has_value(),
                 "a forward step on a rank that holds a part of the model");
  return objective().apply(*std::move(output.loss), microbatch);
}

at::Tensor Model::infer(const Pass& pass) {
  const at::NoGradGuard no_gradients;
  at::Tensor result = forward_chunk(0, pass, {}).result;
  MEGATRON_CHECK(result.defined(), "inference on a rank that holds a part of the model");
  advance_caches(pass);
  return result;
}

std::vector<std::int64_t> Model::result_shape(const Pass& pass) const {
  const at::Tensor& tokens = pass.microbatch.at("tokens");
  if (pass.wants == Wants::token_losses) return tokens.sizes().vec();
  if (pass.wants == Wants::last_logits)
    return {num_last_rows(pass, pass.num_logits), config().vocab_size};
  std::vector<std::int64_t> shape = tokens.sizes().vec();
  if (pass.wants == Wants::hidden && num_streams() > 1) shape.push_back(num_streams());
  shape.push_back(pass.wants == Wants::hidden ? config().hidden_size : config().vocab_size);
  return shape;
}

std::vector<MoeLayer*> moe_layers(Model& model) {
  std::vector<MoeLayer*> layers;
  model.visit([&](Module& module) {
    if (auto* layer = dynamic_cast<MoeLayer*>(&module)) layers.push_back(layer);
  });
  return layers;
}

std::unordered_set<const Parameter*> unit_starts(Model& model) {
  std::unordered_set<const Parameter*> inside, starts;
  for (Module* unit : model.units()) {
    const std::vector<Parameter*> parameters = declared_parameters(*unit);
    if (!parameters.empty()) starts.insert(parameters.front());
    inside.insert(parameters.begin(), parameters.end());
  }
  bool was_inside = true;
  for (const Parameter* parameter : declared_parameters(model)) {
    const bool is_inside = inside.contains(parameter);
    if (!is_inside && was_inside) starts.insert(parameter);
    was_inside = is_inside;
  }
  return starts;
}

UnitParameters unit_parameters(Model& model, const Settings& settings, const Rank& rank,
                               const PipelineLayout& layout) {
  UnitParameters units;
  const OffloadConfig& offload = settings.memory->offload;
  if (zero_stage(*settings.parallel) > 1 || offload.cpu_offloading_weights)
    units.starts = unit_starts(model);
  if (!offload.cpu_offloading_weights) return units;
  std::vector<Module*> layers = model.units();
  std::erase_if(layers, [](const Module* unit) { return !unit->layer_index(); });
  const std::vector<bool> is_offloaded =
      layers_with_offloaded_weights(offload, layout, rank.pp.rank);
  MEGATRON_CHECK(layers.size() == is_offloaded.size(), "a model of ", layers.size(),
                 " layers has an offload plan for ", is_offloaded.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!is_offloaded[i]) continue;
    const std::vector<Parameter*> parameters = declared_parameters(*layers[i]);
    units.offloaded.insert(parameters.begin(), parameters.end());
  }
  return units;
}

std::string ModelUnit::title() const {
  if (layer) return "layer " + std::to_string(*layer);
  std::string words = path.substr(path.rfind('.') + 1);
  if (words.find_first_not_of("0123456789") == words.npos) words = path;  // "mtp.layers.0"
  std::ranges::replace(words, '_', ' ');
  return words;
}

ModelUnit model_unit(const Module& module) {
  return {.path = module.path(), .layer = module.layer_index()};
}

std::vector<ModelUnit> model_units(Model& model) {
  std::vector<ModelUnit> units;
  std::set<const Module*> inside;
  for (Module* unit : model.units()) {
    units.push_back(model_unit(*unit));
    unit->visit([&](Module& module) { inside.insert(&module); });
  }
  model.visit([&](Module& module) {
    if (!module.parameters().empty() && !inside.contains(&module))
      units.push_back(model_unit(module));
  });
  return units;
}

const ModelUnit* find_unit(const std::vector<ModelUnit>& units, std::string_view name) {
  const ModelUnit* found = nullptr;  // the innermost
  for (const ModelUnit& unit : units)
    if (name.starts_with(unit.path) &&
        (name.size() == unit.path.size() || name[unit.path.size()] == '.') &&
        (found == nullptr || unit.path.size() > found->path.size()))
      found = &unit;
  return found;
}

}  // namespace megatron
