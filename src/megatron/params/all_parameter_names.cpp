#include "megatron/params/all_parameter_names.h"

#include "megatron/parallel/object_collectives.h"

namespace megatron {

std::vector<std::string> all_parameter_names(const ParamStore& store) {
  return all_parameter_names(store, [](const Parameter&) { return true; });
}

std::vector<std::string> all_parameter_names(const ParamStore& store,
                                             bool (*select)(const Parameter&)) {
  std::vector<std::string> mine;
  for (const Parameter* parameter : store.parameters()) {
    if (select(*parameter)) mine.push_back(parameter->name());
  }
  return all_gather_unique_names({store.model_axis(), store.device()}, mine);
}

}  // namespace megatron
