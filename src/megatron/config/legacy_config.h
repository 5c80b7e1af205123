// Flags of older releases, as they were given.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace megatron {

/// Older flags as they were given. translate_legacy_flags() sets the settings that they stand for.
struct LegacyFlags {
  bool swiglu = false, geglu = false, quick_geglu = false, squared_relu = false,
       openai_gelu = false;
  bool use_rotary_position_embeddings = false, no_position_embedding = false;
  bool use_rope_scaling = false;
  std::optional<double> rotary_seq_len_interpolation_factor, rotary_scaling_factor;
  std::string rope_type;                          ///< of multi-latent attention
  bool rope_scaling_waits = false;                ///< for the loaded model
  std::map<std::string, std::string> shorthands;  ///< flags that stand for others, by name
};

}  // namespace megatron
