// The names of the model families. The command line needs them without LibTorch;
// models/model_family.cpp has the families themselves.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// The families, as `megatron pretrain <name>` takes them.
inline constexpr std::array<std::string_view, 1> kModelFamilyNames{"gpt"};

/// Returns the names as the choices of a field.
inline std::vector<std::string> model_family_choices() {
  return {kModelFamilyNames.begin(), kModelFamilyNames.end()};
}

}  // namespace megatron
