// config.json of a Hugging Face directory ↔ TransformerConfig, for the families gpt2, llama, qwen2,
// qwen3 and mistral. Both spellings are read: transformers 4 (rope_theta, rope_scaling,
// torch_dtype) and 5 (rope_parameters, dtype).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/config/settings.h"

namespace megatron {

struct HfConfig {
  TransformerConfig model = {};
  std::string model_type = {};
  std::set<std::string> given_training_fields =
      {};  ///< training members (dropout, init std) that the family's config.json decides
  std::vector<std::string> notes = {};  ///< remarks for the user
};

/// The families in the order in which an export tries them.
std::span<const std::string_view> hf_families();

/// Reads config.json; a field that is missing, of the wrong type or not supported is a UserError
/// naming `source` and the field.
HfConfig parse_hf_config(const Json& json, const std::string& source);

/// config.json of `model` as `model_type`, over `original` (null: none), whose other keys are kept.
/// `dtype` is float32, bfloat16 or float16. UserError naming the members that the family cannot
/// express.
Json make_hf_config(const TransformerConfig& model, std::string_view model_type,
                    std::string_view dtype, const Json* original);

}  // namespace megatron
