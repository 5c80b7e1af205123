// Spellings that transformers uses for activations and rotary scalings.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "megatron/config/settings.h"

namespace megatron {

/// Nothing for an activation that is not supported.
std::optional<Activation> find_activation(std::string_view name);
std::string_view activation_name(Activation activation);
/// All spellings, for messages.
std::string activation_names();

std::optional<RopeScaling> find_rope_scaling(std::string_view name);
/// "default" for none.
std::string_view rope_scaling_name(RopeScaling scaling);

}  // namespace megatron
