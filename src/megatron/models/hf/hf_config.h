// Converts between config.json of a Hugging Face directory and TransformerConfig, by the rows of a
// family. Reads the spelling of transformers 4 (rope_theta, rope_scaling, torch_dtype) and of
// transformers 5 (rope_parameters, dtype); writes both.
#pragma once

#include <string>
#include <string_view>

#include "megatron/base/error.h"
#include "megatron/base/json_fwd.h"
#include "megatron/models/hf/hf_family.h"

namespace megatron {

/// The origin of a training member that a family does not have: it is 0, and exports leave it out.
inline constexpr const char* kFamilyHasNone = "the family has none";

/// Reads config.json. Throws UserError naming `source` and the field when a field is missing, of
/// the wrong type or not supported.
HfConfig parse_hf_config(const Json& json, const std::string& source);

/// A model that a family cannot express. It says in how many members, and what would help
/// ("train with --x 1, ").
struct HfMismatch : UserError {
  HfMismatch(const std::string& model_type, const std::string& got, std::size_t members,
             const std::string& remedy = "");
  std::size_t num_members;
};

/// Returns the config.json of `model` as `model_type`. Keys of `original` (may be null) that do not
/// describe the model are kept. `dtype` is float32, bfloat16 or float16. Throws HfMismatch naming
/// the flags of the members that the family cannot express.
Json make_hf_config(const TransformerConfig& model, std::string_view model_type,
                    std::string_view dtype, const Json* original);

}  // namespace megatron
