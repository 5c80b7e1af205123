#include "megatron/checkpoint/merge_architecture.h"

#include <map>

#include "megatron/config/problems.h"
#include "megatron/config/resolve.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

/// Flags that set a member under another name than its own.
const std::multimap<std::string, std::string>& other_flags() {
  static const std::multimap<std::string, std::string> flags{
      {"activation", "swiglu"},
      {"activation", "geglu"},
      {"activation", "quick_geglu"},
      {"activation", "squared_relu"},
      {"activation", "openai_gelu"},
      {"gated_linear_unit", "swiglu"},
      {"gated_linear_unit", "geglu"},
      {"gated_linear_unit", "quick_geglu"},
      {"gated_linear_unit", "squared_relu"},
      {"gated_linear_unit", "openai_gelu"},
      {"position_embedding_type", "use_rotary_position_embeddings"},
      {"position_embedding_type", "no_position_embedding"},
      {"rope_scaling_type", "use_rope_scaling"},
      {"rope_scaling_type", "rotary_seq_len_interpolation_factor"},
      {"rope_scaling_factor", "rotary_seq_len_interpolation_factor"},
      {"window_layers", "window_attn_skip_freq"},
  };
  return flags;
}

/// How the user gave the member ("--swiglu", "run.yaml:3"); empty when not given.
std::string given_by(const std::string& member, const Parsed& parsed) {
  if (parsed.is_set(member)) return parsed.origin(member).where;
  const auto [first, last] = other_flags().equal_range(member);
  for (auto flag = first; flag != last; ++flag) {
    if (parsed.is_set(flag->second)) return parsed.origin(flag->second).where;
  }
  return {};
}

void copy_member(const Field& field, const TransformerConfig& from, TransformerConfig& to) {
  std::vector<std::string> values = field.get(&from);
  if (values.empty() && field.is_optional) values.push_back("none");
  field.set(&to, values);
}

/// The source's architecture as the given flags would change it.
TransformerConfig with_flags(const CheckpointSource& source, TransformerConfig flags, const Parsed& parsed) {
  if (flags.num_layers == 0) flags.num_layers = source.model.num_layers;
  flags.window_layers.clear();
  TransformerConfig pattern = flags;
  resolve(pattern);
  flags.window_layers = pattern.window_layers;
  TransformerConfig candidate = source.model;
  for (const Field& field : forward_members().set().fields) {
    if (field.name != "vocab_size" && !given_by(field.name, parsed).empty()) copy_member(field, flags, candidate);
  }
  if (candidate.ffn_hidden_size == 0) candidate.ffn_hidden_size = source.model.ffn_hidden_size;
  if (candidate.kv_channels == 0) candidate.kv_channels = source.model.kv_channels;
  if (candidate.max_position_embeddings == 0) candidate.max_position_embeddings = source.model.max_position_embeddings;
  return candidate;
}

void refuse_contradictions(const CheckpointSource& source, const TransformerConfig& candidate, const Parsed& parsed) {
  Problems problems;
  for (const ArchitectureDifference& difference : forward_differences(source.model, candidate)) {
    const std::string where = given_by(difference.member, parsed);
    if (where.empty()) continue;
    problems.add({where + " contradicts " + source.folder.string(),
                  difference.member + " is " + difference.left + " there, the flag says " + difference.right, "leave it out"});
  }
  problems.throw_if_any();
}

}  // namespace

TransformerConfig merge_architecture(const CheckpointSource& source, const TransformerConfig& flags, const Parsed& parsed) {
  const TransformerConfig candidate = with_flags(source, flags, parsed);
  refuse_contradictions(source, candidate, parsed);
  TransformerConfig merged = source.model;
  for (const Field& field : training_members().set().fields) {
    if (!given_by(field.name, parsed).empty() || !source.given_knobs.contains(field.name)) copy_member(field, flags, merged);
  }
  if (merged.position_embedding_type != PositionEmbedding::learned_absolute) merged.max_position_embeddings = candidate.max_position_embeddings;
  resolve(merged);
  return merged;
}

}  // namespace megatron
