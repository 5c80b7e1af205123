// The units of a model as values: what reports say of a layer, without its parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/models/model.h"

namespace megatron {

/// A unit that UnitHooks see, or a module with weights outside of them (an output layer).
struct ModelUnit {
  std::string path;                        ///< "decoder.layers.3"
  std::optional<std::int64_t> layer = {};  ///< index of a layer in the whole model

  /// Returns "layer 3", or the last name of the path in words: "final layernorm".
  std::string title() const;
};

ModelUnit model_unit(const Module& module);

/// Returns the units of `model`, in the order of the forward pass.
std::vector<ModelUnit> model_units(Model& model);

/// Returns the unit that the op or parameter of this name belongs to, or null.
const ModelUnit* find_unit(const std::vector<ModelUnit>& units, std::string_view name);

}  // namespace megatron
