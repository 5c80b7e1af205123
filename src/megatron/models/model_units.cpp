#include "megatron/models/model_units.h"

#include <algorithm>
#include <set>

namespace megatron {

std::string ModelUnit::title() const {
  if (layer) return "layer " + std::to_string(*layer);
  std::string words = path.substr(path.rfind('.') + 1);
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
  const auto found = std::ranges::find_if(units, [name](const ModelUnit& unit) {
    return name.starts_with(unit.path) &&
           (name.size() == unit.path.size() || name[unit.path.size()] == '.');
  });
  return found == units.end() ? nullptr : &*found;
}

}  // namespace megatron
