// Maps our parameters to Hugging Face tensors, per family, as data. A name without a counterpart is
// an error in both directions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// How Hugging Face tensors become a parameter, and back (weight_transforms.h).
enum class WeightTransform {
  copy,
  transpose,        ///< GPT-2's Conv1D stores [in, out]
  query_groups,     ///< q, k, v → rows of each query group [q heads | k | v]
  gate_up,          ///< gate, up → [gate; up]
  gpt2_qkv,         ///< Conv1D [in, q|k|v], or its bias [q|k|v] → rows of each head [q | k | v]
  experts,          ///< one tensor per expert → [experts, …]
  experts_gate_up,  ///< gate and up of each expert in turn → [experts, gate | up, in]
};

/// A parameter of ours and the Hugging Face tensors it consists of.
struct WeightMapping {
  std::string ours = {};
  std::vector<std::string> theirs = {};
  WeightTransform transform = WeightTransform::copy;
  /// One tensor that equals the parameter, which transformers 5 has in place of `theirs`; "" if
  /// none.
  std::string stacked = {};
};

/// Returns the mappings of all our parameters; each expert of a model has tensors of its own.
/// Throws UserError naming the parameters that the family has no tensor for, and those that share
/// one.
std::vector<WeightMapping> map_weights(std::string_view model_type,
                                       std::span<const std::string> our_names,
                                       std::int64_t num_experts);

/// Returns the family's full name of a tensor; base models omit "model." or "transformer.".
std::string full_hf_name(std::string_view model_type, const std::string& name);

/// Returns true for buffers that hold no weights: rotary frequencies, GPT-2's causal masks.
bool is_hf_buffer(std::string_view model_type, std::string_view full_name);

/// The output layer, and the embedding it equals when they are tied.
inline constexpr std::string_view kHfOutputLayer = "lm_head.weight";
std::string hf_embedding_name(std::string_view model_type);

}  // namespace megatron
