#include "megatron/checkpoint/merge_architecture.h"

#include <map>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/problems.h"
#include "megatron/config/resolve.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/config/validate_settings.h"
#include "megatron/models/architecture.h"

namespace megatron {
namespace {

template <class T, class V>
bool is_set(const ParseResult& parsed, V T::*member) {
  return parsed.is_set(Setting(member).name());
}

/// Returns where the user set the member ("--swiglu", "run.yaml:3"); empty when it was not set.
std::string given_by(const std::string& member, const ParseResult& parsed) {
  const std::string name = setting_of_member(member);
  return parsed.is_set(name) ? parsed.origin(name).where : std::string();
}

void copy_member(const Field& field, const TransformerConfig& from, TransformerConfig& to) {
  copy_values(field, field.get(&from), &to);
}

/// Sets the width of the experts if a flag gives it. A model without dense MLPs has no other use
/// for
/// --ffn-hidden-size.
void apply_expert_width(const TransformerConfig& source, const ParseResult& parsed,
                        TransformerConfig& candidate) {
  if (!has_feed_forward(canonical_architecture(source), FeedForwardKind::mlp) &&
      is_set(parsed, &TransformerConfig::ffn_hidden_size) &&
      !is_set(parsed, &MoeConfig::ffn_hidden_size))
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

/// Returns whether a member decides only the frequencies of rotary positions. The number of rotated
/// channels and their order are none: weights are trained for them.
bool is_rotary_frequency(std::string_view member) {
  return member.starts_with("rotary_base") || member.starts_with("rope_") ||
         member.starts_with("yarn_");
}

/// Applies the flags of rotary scaling. Another type of scaling takes none of the checkpoint's
/// settings, because each type has defaults of its own.
void apply_rotary_scaling(const TransformerConfig& source, const TransformerConfig& flags,
                          const ParseResult& parsed, TransformerConfig& candidate) {
  const bool is_yarn = is_set(parsed, &TransformerConfig::position_embedding_type) &&
                       flags.position_embedding_type == PositionEmbedding::yarn;
  if (!is_yarn && !is_set(parsed, &TransformerConfig::rope_scaling_type)) return;
  const RopeScaling type = is_yarn ? RopeScaling::yarn : flags.rope_scaling_type;
  if (type == canonical_architecture(source).rope_scaling_type) return;
  for (const Field& field : forward_members().set().fields) {
    if (field.name != "rotary_base" && is_rotary_frequency(field.name))
      copy_member(field, flags, candidate);
  }
  candidate.rope_scaling_type = type;
  if (!is_yarn && candidate.position_embedding_type == PositionEmbedding::yarn)
    candidate.position_embedding_type = PositionEmbedding::rope;
}

/// Returns the source's architecture after the given flags are applied.
TransformerConfig with_flags(const CheckpointSource& source, TransformerConfig flags,
                             const ParseResult& parsed) {
  if (flags.num_layers == 0) flags.num_layers = source.model.num_layers;
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
  apply_rotary_scaling(source.model, flags, parsed, candidate);
  return candidate;
}

/// Returns where the user set what differs: YaRN is also a type of position embedding, and a hybrid
/// pattern names the layers with experts.
std::string cause_of(const std::string& member, const ParseResult& parsed) {
  const std::string where = given_by(member, parsed);
  if (!where.empty()) return where;
  if (member == "rope_scaling_type") return given_by("position_embedding_type", parsed);
  const bool is_of_pattern = member == "num_layers" || member == "moe_layers";
  return is_of_pattern ? given_by("hybrid_layer_pattern", parsed) : where;
}

struct Contradiction {
  std::string text, fix = "leave it out";
};

void refuse_contradictions(const CheckpointSource& source, const TransformerConfig& candidate,
                           const ParseResult& parsed, const MergeOptions& options) {
  const bool differ_in_positions =
      source.model.position_embedding_type != candidate.position_embedding_type;
  std::map<std::string, Contradiction> differences;  // by flag; one flag may set several members
  for (const ArchitectureDifference& difference : forward_differences(source.model, candidate)) {
    const bool is_frequency = is_rotary_frequency(difference.member);
    const std::string where = cause_of(difference.member, parsed);
    if (where.empty() || (is_frequency && options.replaces_rotary_frequencies)) continue;
    if (differ_in_positions && difference.member == "max_position_embeddings")
      continue;  // the number of positions matters only for learned positions
    auto& [text, fix] = differences[where];
    if (is_frequency)
      fix =
          "leave it out; to train on with other rotary frequencies, add --finetune, or change them "
          "at an iteration of --phase-transition-iterations";
    text += (text.empty() ? "" : "; ") + difference.member + " is " + difference.left +
            " there, the flag says " + difference.right;
  }
  // Other flags of experts, and of rotary scaling without rotary positions, have notes.
  const bool is_dense = source.model.moe.num_experts == 0 && candidate.moe.num_experts == 0;
  for (const auto member : {&MoeConfig::ffn_hidden_size, &MoeConfig::latent_size}) {
    if (is_dense && candidate.moe.*member != source.model.moe.*member)
      differences[given_by(Setting(member).name(), parsed)].text = "the model has no experts there";
  }
  Problems problems;
  for (const auto& [where, contradiction] : differences)
    problems.add(
        {where + " contradicts " + source.folder.string(), contradiction.text, contradiction.fix});
  problems.throw_if_any();
}

}  // namespace

TransformerConfig merge_architecture(const CheckpointSource& source, const TransformerConfig& flags,
                                     const ParseResult& parsed, const MergeOptions& options) {
  const TransformerConfig candidate = with_flags(source, flags, parsed);
  refuse_contradictions(source, candidate, parsed, options);
  TransformerConfig merged = source.model;
  if (options.replaces_rotary_frequencies) {
    for (const Field& field : forward_members().set().fields) {
      if (is_rotary_frequency(field.name)) copy_member(field, candidate, merged);
    }
    merged.position_embedding_type = candidate.position_embedding_type;
  }
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

Notes notes_on_flags(Settings settings, const TransformerConfig& flags, const ParseResult& parsed) {
  FieldNames given;
  for (const auto& [name, origin] : parsed.origins) given.insert(name);
  for (const Field& field : transformer_table().set().fields)
    if (given.contains(field.name)) copy_member(field, flags, *settings.model);
  return validate_model(settings, {}, &given).notes();
}

std::string training_origins(const CheckpointSource& source, const TransformerConfig& merged,
                             const ParseResult& parsed) {
  return joined_text(source.given_training_fields, ", ", [&](const auto& one) {
    const auto& [member, origin] = one;
    const Field& field = *training_members().set().find_name(member);
    const std::string where = given_by(member, parsed);
    return member + ' ' + join_values(field.get(&merged)) + " (" +
           (where.empty() ? origin : where) + ')';
  });
}

std::string rotary_differences(const TransformerConfig& checkpoint,
                               const TransformerConfig& merged) {
  std::string text;
  for (const ArchitectureDifference& difference : forward_differences(checkpoint, merged)) {
    if (is_rotary_frequency(difference.member))
      text += (text.empty() ? "" : ", ") + difference.member + " " + difference.left +
              " there and " + difference.right + " now";
  }
  return text;
}

}  // namespace megatron
