// What families share: constants of their rows, and beginnings of tables that each completes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "megatron/config/size_limits.h"
#include "megatron/models/hf/hf_family.h"

namespace megatron::families {

using T = TransformerConfig;
using M = MoeConfig;

inline constexpr Blocks kQuery{0, 1}, kKey{1, 1}, kValue{2, 1}, kQueryKeyValue{0, 3};
inline constexpr Blocks kGate{0, 1}, kUp{1, 1}, kGateUp{0, 2};
inline constexpr KeyMeaning kPositive{.range = kAboveZero};
inline constexpr KeyMeaning kNegated{.is_negated = true};
inline constexpr KeyMeaning kLayers{.most = kMostLayers, .alias = "num_hidden_layers"};
inline constexpr KeyMeaning kPositions{.most = kMaxSize, .alias = "max_position_embeddings"};

/// The size of the vocabulary, whether the output layer is the embedding, and the deviation of new
/// weights.
KeyRows common_keys();

/// attention_bias and mlp_bias, which must be equal and are false by default.
KeyRow biases();

/// Returns the number of shared experts as wide as the others; 0 in a model without experts.
std::int64_t num_shared_experts(const M& moe);

/// A gated MLP and its norm.
TensorRows mlp_tensors();
/// A tensor that transformers 5 has in place of those of each expert.
TensorRow stacked(const std::string& ours, const std::string& theirs);
/// The names are below the layer; those of an expert have {e}.
TensorRows expert_tensors(const std::string& gate = "mlp.experts.{e}.gate_proj.weight",
                          const std::string& up = "mlp.experts.{e}.up_proj.weight",
                          const std::string& down = "mlp.experts.{e}.down_proj.weight",
                          const std::string& router = "mlp.gate.weight");
/// Shared experts without a gate.
TensorRows shared_expert_tensors(const std::string& theirs = "mlp.shared_experts");

/// A decoder with rotary positions and without dropout. `groups` is the class's default of
/// num_key_value_heads (0: as many as heads).
HfFamily decoder(const std::string& model_type, const std::string& architecture,
                 std::int64_t groups, const AttentionKeys& keys);
/// A decoder with RMS norms and gated units, and without biases. It has an MLP or experts.
HfFamily llama_like(const std::string& model_type, const std::string& architecture,
                    std::int64_t groups, const AttentionKeys& keys);

/// Adds the keys of experts: their number, which may have another spelling, and the width of one.
void add_experts(HfFamily& family, const std::string& number, std::string_view alias,
                 const std::string& width, std::int64_t default_number, std::int64_t topk);
/// topk_method, n_group and topk_group. With the method `limited` only experts of the best groups
/// are chosen, where a group has the score of its `scored` best experts; with `otherwise` they do
/// not count.
KeyRow expert_groups(const std::string& limited, const std::string& otherwise, std::int64_t scored,
                     std::int64_t groups, std::int64_t chosen);
/// The keys of experts as DeepSeek-V2 names them: how many there are and how wide one is, which
/// layers have them, and the width of the shared ones.
KeyRows routed_expert_keys(std::int64_t num_dense, std::int64_t num_shared);
/// Makes scores sigmoids, and adds an expert bias. Refuses a choice of one expert, whose weight
/// would be 1, which ours is not.
void add_sigmoid_router(HfFamily& family);
/// Adds norm_topk_prob, which is false by default.
void add_optional_normalization(HfFamily& family);
/// Whether a layer has a window, for Windows::includes: those from max_window_layers on.
inline bool is_from(std::int64_t layer, std::int64_t max_window_layers) {
  return layer >= max_window_layers;
}
/// Norms of queries and keys without biases.
TensorRows query_key_norm_tensors(const std::string& query = "q_norm",
                                  const std::string& key = "k_norm");
/// Adds norms of queries and keys, without biases of the attention. The names are those of their
/// tensors.
void add_query_key_norms(HfFamily& family, QkNormScope scope, const std::string& query = "q_norm",
                         const std::string& key = "k_norm");
/// Takes the rotary positions from layers without a window.
void rotate_in_windows_alone(TransformerConfig& model);
/// Lets norms follow attention and MLP, and none precede them.
void norm_outputs(HfFamily& family);

/// The sizes of gated delta nets, and which layers have them.
KeyRows delta_net_keys();

/// The names of the keys of Mamba layers.
struct MambaKeys {
  std::string heads, head_dim, state, groups, taps, conv_bias;
  std::string expand = {};  ///< heads · head_dim / hidden_size; "": the class does not use it
};
KeyRows mamba_keys(const MambaKeys& keys);
/// A Mamba layer, but its first norm.
TensorRows mamba_tensors(const std::string& theirs);
/// Adds Mamba layers to a decoder, of whose layers each is two of ours: a mixer, and the rest,
/// whose tensors the caller adds. Call it before other tensors of layers are added.
void add_mamba_mixers(HfFamily& family);
/// Returns the layers as a hybrid pattern without stages; and every second symbol of it.
std::string pattern_of(TransformerConfig model);
std::string mixers_of(const TransformerConfig& model);
/// Makes layers of a mixer and a feed-forward block, by their symbols.
void set_mixers(TransformerConfig& model, std::string_view mixers, char feed_forward);
/// Read and return a list of the kinds of layers by name, for the symbols of a pattern. `count` is
/// how many there must be; 0: any number.
std::string read_layer_types(const ConfigReader& config, const std::string& key,
                             std::string_view symbols, std::int64_t count = 0);
Json layer_types_of(std::string_view pattern);

}  // namespace megatron::families
