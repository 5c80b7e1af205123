// The names that transformers uses for activations and rotary scalings.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "megatron/config/transformer_enums.h"

namespace megatron {

/// Returns nothing for an unsupported activation.
std::optional<Activation> find_activation(std::string_view name);
std::string_view activation_name(Activation activation);
/// Returns all activation names, for messages.
std::string activation_names();

std::optional<RopeScaling> find_rope_scaling(std::string_view name);
/// Returns "default" for none.
std::string_view rope_scaling_name(RopeScaling scaling);

}  // namespace megatron
