// A root module for tests. It holds layers, or parameters that are declared one by one.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "megatron/nn/module.h"

namespace megatron {

struct BareModule : Module {
  BareModule() : Module(nullptr, "") {}
  Parameter& add(std::string_view name, ParameterSpec spec, const Axis& axis = {}) {
    return declare(name, std::move(spec), axis);
  }
  /// Declares a parameter over several axes.
  Parameter& add_over(std::string_view name, ParameterSpec spec, std::vector<Axis> axes) {
    return declare(name, std::move(spec), std::move(axes));
  }
};

/// Returns the spec of an unsharded parameter drawn from N(0, 1).
inline ParameterSpec normal_spec(Shape shape, ParameterTags tags = {}) {
  return {Sharding::replicated(std::move(shape)), Init::normal(1), tags};
}

}  // namespace megatron
