#include "megatron/checkpoint/merge_architecture.h"

#include <map>

#include "megatron/config/problems.h"
#include "megatron/config/resolve.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

/// Returns where the user set the member ("--swiglu", "run.yaml:3"); empty when it was not set.
std::string given_by(const std::string& member, const ParseResult& parsed) {
  const std::string name = member == "window_layers" ? "window_attn_skip_freq"
                           : member == "moe_layers"  ? "moe_layer_freq"
                                                     : member;
  return parsed.is_set(name) ? parsed.origin(name).where : std::string();
}

void copy_member(const Field& field, const TransformerConfig& from, TransformerConfig& to) {
  std::vector<std::string> values = field.get(&from);
  if (values.empty() && field.is_optional) values.push_back("none");
  field.set(&to, values);
}

/// Sets the width of the experts if a flag gives it. A model without dense MLPs has no other use
/// for
/// --ffn-hidden-size.
void apply_expert_width(const TransformerConfig& source, const ParseResult& parsed,
                        TransformerConfig& candidate) {
  const bool has_dense_mlp =
      source.moe.num_experts == 0 || !canonical_architecture(source).moe.layers.empty();
  if (!has_dense_mlp && parsed.is_set("ffn_hidden_size") && !parsed.is_set("moe_ffn_hidden_size"))
    candidate.moe.ffn_hidden_size = candidate.ffn_hidden_size;
  if (candidate.moe.ffn_hidden_size == 0)
    candidate.moe.ffn_hidden_size = source.moe.ffn_hidden_size;
}

/// Copies the settings that say how a run dispatches and logs the tokens of experts.
void copy_dispatch(const MoeConfig& from, MoeConfig& to) {
  to.router_force_load_balancing = from.router_force_load_balancing;
  to.token_dispatcher_type = from.token_dispatcher_type;
  to.shared_expert_overlap = from.shared_expert_overlap;
  to.per_layer_logging = from.per_layer_logging;
  to.expert_placement_interval = from.expert_placement_interval;
}

/// Returns the source's architecture after the given flags are applied.
TransformerConfig with_flags(const CheckpointSource& source, TransformerConfig flags,
                             const ParseResult& parsed) {
  if (flags.num_layers == 0) flags.num_layers = source.model.num_layers;
  flags.window_layers.clear();
  flags.moe.layers.clear();
  TransformerConfig pattern = flags;
  pattern.moe.num_experts = source.model.moe.num_experts;
  resolve(pattern);
  flags.window_layers = pattern.window_layers;
  flags.moe.layers = pattern.moe.layers;
  TransformerConfig candidate = source.model;
  for (const Field& field : forward_members().set().fields) {
    if (field.name != "vocab_size" && !given_by(field.name, parsed).empty())
      copy_member(field, flags, candidate);
  }
  if (candidate.ffn_hidden_size == 0) candidate.ffn_hidden_size = source.model.ffn_hidden_size;
  if (candidate.kv_channels == 0) candidate.kv_channels = source.model.kv_channels;
  if (candidate.max_position_embeddings == 0)
    candidate.max_position_embeddings = source.model.max_position_embeddings;
  apply_expert_width(source.model, parsed, candidate);
  return candidate;
}

void refuse_contradictions(const CheckpointSource& source, const TransformerConfig& candidate,
                           const ParseResult& parsed) {
  const bool differ_in_positions =
      source.model.position_embedding_type != candidate.position_embedding_type;
  std::map<std::string, std::string> differences;  // by flag; one flag may set several members
  for (const ArchitectureDifference& difference : forward_differences(source.model, candidate)) {
    const std::string where = given_by(difference.member, parsed);
    if (where.empty()) continue;
    if (differ_in_positions && difference.member == "max_position_embeddings")
      continue;  // the number of positions matters only for learned positions
    std::string& text = differences[where];
    text += (text.empty() ? "" : "; ") + difference.member + " is " + difference.left +
            " there, the flag says " + difference.right;
  }
  const bool is_dense = source.model.moe.num_experts == 0 && candidate.moe.num_experts == 0;
  for (const Field& field : forward_members().set().fields) {
    if (is_dense && is_moe_member(field.name) && field.get(&candidate) != field.get(&source.model))
      differences[given_by(field.name, parsed)] = "the model has no experts there";
  }
  Problems problems;
  for (const auto& [where, text] : differences)
    problems.add({where + " contradicts " + source.folder.string(), text, "leave it out"});
  problems.throw_if_any();
}

}  // namespace

TransformerConfig merge_architecture(const CheckpointSource& source, const TransformerConfig& flags,
                                     const ParseResult& parsed) {
  const TransformerConfig candidate = with_flags(source, flags, parsed);
  refuse_contradictions(source, candidate, parsed);
  TransformerConfig merged = source.model;
  for (const Field& field : training_members().set().fields) {
    if (!given_by(field.name, parsed).empty() || !source.given_training_fields.contains(field.name))
      copy_member(field, flags, merged);
  }
  if (merged.position_embedding_type != PositionEmbedding::learned_absolute)
    merged.max_position_embeddings = candidate.max_position_embeddings;
  copy_dispatch(flags.moe, merged.moe);
  resolve(merged);
  return merged;
}

}  // namespace megatron
