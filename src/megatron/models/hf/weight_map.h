// Which Hugging Face tensors make up which of our parameters, per family, as data. Total in both
// directions or an error naming names.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// How the tensors of a link turn into one another (weight_transforms.h).
enum class WeightTransform {
  copy,
  transpose,     ///< GPT-2's Conv1D keeps [in, out]
  query_groups,  ///< q, k, v → rows of each query group [q heads | k | v]
  gate_up,       ///< gate, up → [gate; up]
  gpt2_qkv,      ///< Conv1D [in, q|k|v], or its bias [q|k|v] → rows of each head [q | k | v]
};

/// One of our parameters and the tensors it is made of.
struct WeightMapping {
  std::string ours = {};
  std::vector<std::string> theirs = {};
  WeightTransform transform = WeightTransform::copy;
};

/// The links of all our parameters. UserError naming those that the family has no tensor for.
std::vector<WeightMapping> map_weights(std::string_view model_type,
                                       std::span<const std::string> our_names);

/// The family's full spelling of a tensor: base models leave "model." or "transformer." out.
std::string full_hf_name(std::string_view model_type, const std::string& name);

/// Buffers that hold no weights: rotary frequencies, GPT-2's causal masks.
bool is_hf_buffer(std::string_view model_type, std::string_view full_name);

/// The output layer and the embedding it equals when they are tied.
inline constexpr std::string_view kHfOutputLayer = "lm_head.weight";
std::string hf_embedding_name(std::string_view model_type);

}  // namespace megatron
