#include "megatron/models/unit_parameters.h"

#include "megatron/base/error.h"
#include "megatron/config/activation_plan.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/zero_stage.h"
#include "megatron/parallel/rank.h"

namespace megatron {

UnitParameters unit_parameters(Model& model, const Settings& settings, const Rank& rank,
                               const PipelineLayout& layout) {
  UnitParameters units;
  const OffloadConfig& offload = settings.memory->offload;
  if (zero_stage(*settings.parallel) > 1 || offload.cpu_offloading_weights)
    units.starts = unit_starts(model);
  if (!offload.cpu_offloading_weights) return units;
  const std::vector<Module*> layers = model.layers();
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

}  // namespace megatron
