// Converts between config.json of a Hugging Face directory and TransformerConfig, by the rows of a
// family. Reads the spelling of transformers 4 (rope_theta, rope_scaling, torch_dtype) and of
// transformers 5 (rope_parameters, dtype); writes both.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/hf/hf_family.h"

namespace megatron {

/// The origin of a training member that a family does not have: it is 0, and exports leave it out.
inline constexpr const char* kFamilyHasNone = "the family has none";

/// The contents of a config.json.
struct HfConfig {
  TransformerConfig model = {};
  std::string model_type = {};
  /// Training members (dropout, init std) that the family sets, and from where, for the log.
  std::map<std::string, std::string> given_training_fields = {};
  std::vector<std::string> notes = {};  ///< remarks for the user
};

/// The interpreter of rows.
void read_keys(const KeyRows& rows, const ConfigReader& config, HfConfig& result);
void write_keys(const KeyRows& rows, const TransformerConfig& model, Json& json);

/// Reads config.json. Throws UserError naming `source` and the field when a field is missing, of
/// the wrong type or not supported.
HfConfig parse_hf_config(const Json& json, const std::string& source,
                         const HfFamilies& families = hf_families());

/// Returns the config.json of `model` as `model_type`. Keys of `original` (may be null) that do not
/// describe the model are kept. `dtype` is float32, bfloat16 or float16. Throws UserError naming
/// the members that the family cannot express.
Json make_hf_config(const TransformerConfig& model, std::string_view model_type,
                    std::string_view dtype, const Json* original,
                    const HfFamilies& families = hf_families());

}  // namespace megatron
