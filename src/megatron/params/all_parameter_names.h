// The names of a whole model's parameters, of which a rank may hold a part.
#pragma once

#include <string>
#include <vector>

#include "megatron/params/param_store.h"

namespace megatron {

/// Of all ranks that hold the replica together, ascending, each once. Collective over
/// store.model_axis().
std::vector<std::string> all_parameter_names(const ParamStore& store);

}  // namespace megatron
