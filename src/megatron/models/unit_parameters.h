// What a ParamStore must know of the units of a model: where they begin, for weights and gradients
// that are in memory only while their unit is used, and which weights are offloaded.
#pragma once

#include <unordered_set>

#include "megatron/config/pipeline_layout.h"
#include "megatron/models/model.h"

namespace megatron {

struct Rank;
struct Settings;

/// For ParamStore::Options.
struct UnitParameters {
  std::unordered_set<const Parameter*> starts = {};     ///< first parameters of the units
  std::unordered_set<const Parameter*> offloaded = {};  ///< --cpu-offloading-weights
};

/// Returns empty sets when a run shards and offloads neither weights nor gradients.
UnitParameters unit_parameters(Model& model, const Settings& settings, const Rank& rank,
                               const PipelineLayout& layout);

}  // namespace megatron
