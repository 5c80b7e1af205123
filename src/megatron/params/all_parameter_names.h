// The parameter names of the whole model. A rank holds only a part of the parameters.
#pragma once

#include <string>
#include <vector>

#include "megatron/params/param_store.h"

namespace megatron {

/// Returns the names of the parameters of all ranks that together hold one replica, ascending and
/// without duplicates. Collective over store.model_axis().
std::vector<std::string> all_parameter_names(const ParamStore& store);

/// Returns those names for which `select` returns true on the ranks that hold the parameter.
/// Collective over store.model_axis().
std::vector<std::string> all_parameter_names(const ParamStore& store,
                                             bool (*select)(const Parameter&));

}  // namespace megatron
