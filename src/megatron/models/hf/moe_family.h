// The mixture-of-experts keys of config.json. The families differ in names and defaults, which are
// a table; reading and writing share it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "megatron/base/json_fwd.h"
#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/hf_config.h"

namespace megatron {

struct TransformerConfig;

/// The keys of a family with experts, and the defaults of its configuration class.
struct MoeFamily {
  std::string_view model_type;
  /// The key of the number of experts, and another spelling that transformers 5 reads ("" for
  /// none).
  std::string_view experts_key, other_experts_key;
  std::int64_t default_experts = 0, default_topk = 0;
  /// The key of the width of one expert. A default of 0 means that the key is required.
  std::string_view width_key;
  std::int64_t default_width = 0;
  std::int64_t default_shared_width = 0;  ///< 0: the family has no shared expert
  bool chooses_layers = false;            ///< reads decoder_sparse_step and mlp_only_layers
  bool always_normalizes = false;         ///< probabilities sum to 1; else norm_topk_prob decides
  bool reads_jitter = false;              ///< reads router_jitter_noise
  double default_aux_coefficient = 0.001;
};

/// Returns null for a family without experts.
const MoeFamily* find_moe_family(std::string_view model_type);

/// Reads the experts of a model whose other sizes are already read.
void read_moe(const ConfigReader& config, const MoeFamily& family, HfConfig& result);

/// Writes the keys that read_moe() reads. The model is in canonical spelling.
void write_moe(const TransformerConfig& model, const MoeFamily& family, Json& json);

}  // namespace megatron
