// Rules on the architecture, from flags, a checkpoint or config.json.
#include <algorithm>

#include "megatron/config/legacy_config.h"
#include "megatron/config/list_expression.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

using namespace rules;

bool is_rotary(S s) { return s.model->has_rotary(); }
bool is_latent(S s) { return s.model->multi_latent_attention; }
std::int64_t rotary_channels(S s) { return s.model->rotated_channels(); }

std::int64_t largest_size(S s) {
  const TransformerConfig& m = *s.model;
  std::int64_t most = m.num_attention_heads * m.kv_channels;
  for (const MixerKind kind : {MixerKind::mamba, MixerKind::gated_delta_net})
    if (has_mixer(m, kind)) most = std::max(most, m.recurrent_sizes(kind).in_proj_rows());
  return std::max({most, m.hidden_size, m.num_attention_heads, m.ffn_hidden_size, m.kv_channels,
                   m.num_query_groups, m.vocab_size, m.max_position_embeddings,
                   m.moe.ffn_hidden_size, m.moe.shared_expert_intermediate_size,
                   m.moe.latent_size});
}

bool is_too_large(S s) { return largest_size(s) > kMaxSize || s.model->num_layers > kMaxLayers; }

bool rounds_to_nothing(S s) {
  return s.model->ffn_hidden_size == 0 && s.model->hidden_size > 0 &&
         s.model->hidden_size <= kMaxSize;
}

bool lacks_positions(S s) {
  const TransformerConfig& m = *s.model;
  return m.position_embedding_type == PositionEmbedding::learned_absolute &&
         m.position_offset > 0 && m.max_position_embeddings > 0 &&
         s.training->seq_length + m.position_offset > m.max_position_embeddings;
}

bool has_indivisible_heads(S s) {
  const TransformerConfig& m = *s.model;
  const bool derived = !m.multi_latent_attention && m.num_attention_heads > 0 &&
                       m.kv_channels == m.hidden_size / m.num_attention_heads;
  return derived && m.hidden_size % m.num_attention_heads != 0;
}

std::int64_t vocabulary_of_model(S s) { return s.model->vocab_size; }
bool exceeds_vocabulary(S s) {
  return s.model->vocab_size > 0 && s.tokenizer->vocab_size.value_or(0) > s.model->vocab_size;
}

Rules size_rules() {
  return {
      rule(is_too_large,
           {"the model",
            {value(&Model::num_layers), " layers, with a size of ", largest_size, ", is too large"},
            {"use sizes of at most ", kMaxSize, " and at most ", kMaxLayers, " layers"}}),
      rule([](S s) { return s.model->num_layers <= 0; },
           {&Model::num_layers,
            "is required",
            {"add ", to_add(&Model::num_layers), ", the number of transformer layers"},
            {&Model::hybrid_layer_pattern}}),
      required(&Model::hidden_size, "the hidden size of the model"),
      required(&Model::num_attention_heads, "the number of query heads"),
      rule(rounds_to_nothing,
           {&Model::ffn_hidden_size,
            {"its default, 8/3 of ", &Model::hidden_size,
             " rounded down to a multiple of 64, is 0 with ", value(&Model::hidden_size)},
            {"give ", &Model::ffn_hidden_size, " N, or a ", &Model::hidden_size,
             " of at least 24"}}),
      rule(has_indivisible_heads,
           {&Model::hidden_size,
            {value(&Model::hidden_size), " is not divisible by ",
             with_value(&Model::num_attention_heads)},
            {"change one of them, or set the head size with ", &Model::kv_channels}}),
      when(&Model::group_query_attention,
           divides(&Model::num_query_groups, &Model::num_attention_heads)),
      when(is(&Model::position_embedding_type, "learned_absolute"),
           at_least(&Training::seq_length, &Model::max_position_embeddings,
                    {.fix = {"lower ", &Training::seq_length, ", or in a new model raise ",
                             &Model::max_position_embeddings, " or use ",
                             &Model::position_embedding_type, " rope"}})),
      rule(lacks_positions, {&Training::seq_length,
                             {"the ", value(&Training::seq_length), " positions from row ",
                              value(&Model::position_offset), " on exceed ",
                              with_value(&Model::max_position_embeddings)},
                             {"lower ", &Training::seq_length}}),
      at_least(&Tokenizer::vocab_size, &Tokenizer::padded_vocab_size,
               {.fix = {"raise ", &Tokenizer::padded_vocab_size, ", or leave it out"}}),
      rule(exceeds_vocabulary,
           {&Tokenizer::vocab_size,
            {value(&Tokenizer::vocab_size), " is more than the model's ", vocabulary_of_model},
            {"use at most ", vocabulary_of_model}}),
  };
}

Condition has_local_layers() {
  return {[](S s) { return s.model->window_size || s.model->attention_chunk_size > 0; },
          {&Model::window_size, " or ", &Model::attention_chunk_size}};
}

bool has_odd_rotation(S s) {
  return is_rotary(s) && !is_latent(s) && s.model->kv_channels > 0 &&
         (rotary_channels(s) < 2 || rotary_channels(s) % 2 != 0);
}

Rules position_rules() {
  const auto is_scaled = [](S s) { return s.model->rope_scaling_type != RopeScaling::none; };
  const auto is_llama3 = [](S s) { return s.model->rope_scaling_type == RopeScaling::llama3; };
  const auto is_yarn = [](S s) { return s.model->rope_scaling_type == RopeScaling::yarn; };
  const auto is_reversed = [](S s) {
    return s.model->rope_scaling_type == RopeScaling::llama3 &&
           s.model->rope_high_freq_factor < s.model->rope_low_freq_factor;
  };
  // The buckets of far positions have logarithmic widths, from half of the buckets on.
  const auto is_near = [](S s) {
    return s.model->has_relative_bias() &&
           2 * s.model->relative_attention_max_distance <= s.model->relative_attention_num_buckets;
  };
  const auto has_temperature = [](S s) {
    return !s.model->no_rope_freq.empty() || s.model->attn_temperature_all_layers;
  };
  const Show show_scaling = [](const Setting&, S) -> std::string { return "rotary scaling"; };
  return {
      refuse(
          {&Legacy::no_position_embedding, is(&Model::position_embedding_type, "learned_absolute")},
          "requires no learned positions, but the model has them",
          {"add ", &Model::position_embedding_type,
           " rope, or none for a model without any positions"}),
      rule(has_odd_rotation,
           {&Model::rotary_percent,
            {value(&Model::rotary_percent), " of ", value(&Model::kv_channels),
             " head channels is ", rotary_channels, ", not an even number above 0"},
            {"change ", &Model::rotary_percent, " or ", &Model::kv_channels},
            {&Model::hidden_size, &Model::num_attention_heads, &Model::position_embedding_type}}),
      tunes({{is_scaled, Piece(&Model::rope_scaling_type, show_scaling)},
             &Model::rotary_base,
             &Model::rotary_base_local,
             &Model::rotary_percent,
             &Model::rotary_interleaved,
             &Model::no_rope_freq},
            {is_rotary, {&Model::position_embedding_type, " rope"}}),
      when(is_rotary, tunes({&Model::rotary_base_local}, has_local_layers())),
      tunes({&Model::attn_temperature_scale},
            {has_temperature, {&Model::no_rope_freq, " or ", &Model::attn_temperature_all_layers}}),
      tunes({&Model::attn_temperature_floor, &Model::attn_temperature_all_layers},
            &Model::attn_temperature_scale),
      tunes({&Model::position_offset}, is(&Model::position_embedding_type, "learned_absolute")),
      tunes({&Model::relative_attention_num_buckets, &Model::relative_attention_max_distance,
             &Model::relative_attention_per_layer},
            is(&Model::position_embedding_type, "relative")),
      rule(is_near, {&Model::relative_attention_max_distance,
                     {value(&Model::relative_attention_max_distance), " is not above half of ",
                      with_value(&Model::relative_attention_num_buckets)},
                     {"raise ", &Model::relative_attention_max_distance}}),
      tunes({&Model::rope_scaling_factor},
            {is_scaled, {&Model::rope_scaling_type, " or ", &Legacy::use_rope_scaling}}),
      tunes({&Model::rope_low_freq_factor, &Model::rope_high_freq_factor},
            {is_llama3, &Legacy::use_rope_scaling}),
      tunes({&Model::rope_original_max_position_embeddings},
            {[=](S s) { return is_llama3(s) || is_yarn(s); },
             {&Legacy::use_rope_scaling, " and no YaRN"}}),
      tunes({&Model::yarn_beta_fast, &Model::yarn_beta_slow, &Model::yarn_mscale,
             &Model::yarn_mscale_all_dim, &Model::yarn_correction_range_round_to_int,
             &Model::yarn_attention_factor},
            {is_yarn, "YaRN"}),
      rule(is_reversed, {&Model::rope_high_freq_factor,
                         {value(&Model::rope_high_freq_factor), " is below ",
                          with_value(&Model::rope_low_freq_factor)},
                         {"raise ", &Model::rope_high_freq_factor}}),
  };
}

bool has_own_head_size(S s) {
  const TransformerConfig& m = *s.model;
  return m.num_attention_heads > 0 && m.kv_channels != m.hidden_size / m.num_attention_heads;
}

bool has_wrong_symbol(S s) {
  return s.model->hybrid_layer_pattern.find(is_latent(s) ? '*' : '+') != std::string::npos;
}

Rules latent_attention_rules() {
  const Condition latents = &Model::multi_latent_attention;
  return {
      when(latents,
           {excludes(&Model::group_query_attention, latents,
                     {.why = ", in which each head has keys and values of its own"}),
            excludes(&Model::rotary_interleaved, latents,
                     {.why = ", which rotates pairs of adjacent channels anyway"}),
            excludes(
                &Model::rotary_percent, latents,
                {.fix = {"set the number of rotated channels with ", &Model::qk_pos_emb_head_dim}}),
            excludes(&Model::no_rope_freq, latents, {.why = ", which always rotates"}),
            excludes(&Model::rotary_base_local, latents), excludes(&Model::clip_qkv, latents),
            excludes(&Model::attn_temperature_all_layers, latents),
            excludes(&Model::qk_l2_norm, latents, {.fix = {"use ", &Model::qk_layernorm}}),
            excludes(is(&Model::qk_layernorm_placement, "after_rotary"), latents,
                     {.why = ", which normalizes its latents"}),
            excludes(&Model::attention_output_gate, latents),
            excludes(&Model::softmax_scale, latents,
                     {.why = ", which scales scores by the size of its heads and by YaRN",
                      .fix = {"use ", &Model::yarn_mscale_all_dim}}),
            excludes(is(&Model::qk_layernorm_scope, "all_heads"), latents),
            excludes(is(&Model::qk_layernorm_scope, "each_head"), latents),
            excludes(is(&Model::position_embedding_type, "alibi"), latents),
            excludes(is(&Model::position_embedding_type, "yarn"), latents,
                     {.fix = {"use ", &Model::position_embedding_type, " rope with ",
                              &Legacy::rope_type, " yarn"}}),
            idle({&Model::add_qkv_bias, {has_own_head_size, {&Model::kv_channels}}}, latents)}),
      when(latents, rule([](S s) { return s.model->qk_pos_emb_head_dim % 2 != 0; },
                         {&Model::qk_pos_emb_head_dim,
                          {value(&Model::qk_pos_emb_head_dim), " channels cannot be rotated"},
                          "use an even number"})),
      tunes({&Model::q_lora_rank, &Model::kv_lora_rank, &Model::qk_head_dim,
             &Model::qk_pos_emb_head_dim, &Model::v_head_dim},
            latents),
      rule(has_wrong_symbol,
           {&Model::hybrid_layer_pattern,
            "its attention is + with multi-latent attention, and * without",
            {"write one of the two, with or without ", &Model::multi_latent_attention}}),
  };
}

bool has_layers_with_experts(S s) { return has_feed_forward(*s.model, FeedForwardKind::experts); }

bool is_quick_gated(S s) {
  return s.model->gated_linear_unit && s.model->activation == Activation::quick_gelu;
}
bool can_clamp(S s) {
  const bool is_swiglu = s.model->gated_linear_unit && s.model->activation == Activation::silu;
  return is_quick_gated(s) || (is_swiglu && has_layers_with_experts(s));
}

Rules gate_rules() {
  const std::vector<Setting> reads = {&Model::activation, &Model::gated_linear_unit,
                                      &Moe::num_experts,  &Moe::layer_freq,
                                      &Model::num_layers, &Model::hybrid_layer_pattern};
  const Condition clamped_gates = {
      can_clamp,
      {&Legacy::quick_geglu, ", or ", &Legacy::swiglu, " with layers of experts"},
      reads};
  return {
      needs(&Model::activation_func_clamp_value, clamped_gates),
      needs(valued(&Model::glu_linear_offset), {is_quick_gated, &Legacy::quick_geglu, reads}),
  };
}

using ListedLayers = std::vector<std::int64_t> (*)(const TransformerConfig&);

/// The rules of a flag that lists layers, which `list` returns.
Rules layer_list_rules(const Setting& flag, ListedLayers list, const char* example) {
  const auto count = [=](S s) { return std::ssize(list(*s.model)); };
  const auto is_malformed = [=](S s) { return count(s) == 0 && s.model->num_layers > 0; };
  const auto names_other_layers = [=](S s) {
    return count(s) > 0 && count(s) != s.model->num_layers;
  };
  const auto has_other_numbers = [=](S s) {
    return std::ranges::any_of(list(*s.model),
                               [](std::int64_t one) { return one != 0 && one != 1; });
  };
  return {
      refuse({flag, is_malformed},
             {"'", value(flag), "' is neither a number above 0 nor a list expression"},
             {"write 4, or ", example}),
      rule(names_other_layers,
           {flag,
            {"names ", count, " layers, ", &Model::num_layers, " is ", value(&Model::num_layers)},
            "list every layer once"}),
      refuse({flag, has_other_numbers}, {"'", value(flag), "' lists a number other than 0 and 1"},
             {"write 0 or 1 for each layer, such as ", example}),
  };
}

/// Returns windowed_layers() of a period. A list may have any value for a layer without attention.
std::vector<std::int64_t> counted_windows(const TransformerConfig& model) {
  return layer_period(model.window_attn_skip_freq) ? windowed_layers(model)
                                                   : std::vector<std::int64_t>();
}

/// Notes that a flag which lists layers also counts those of a hybrid pattern without attention.
/// `value` is how `list` marks the layers that it names.
Rules names_blocks_without_attention(const Setting& flag, ListedLayers list, std::int64_t value) {
  const auto number = [=](S s) {
    const std::vector<std::int64_t> layers = list(*s.model);
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < std::min<std::int64_t>(std::ssize(layers), s.model->num_layers);
         ++i)
      count += layers[static_cast<std::size_t>(i)] == value && !s.model->kind(i).has_attention();
    return count;
  };
  return note({flag, [=](S s) { return number(s) > 0; }},
              {"counts every layer of ", &Model::hybrid_layer_pattern, ": ", number,
               " of those that it names have no attention"});
}

Rules attention_rules() {
  const auto has_negative_side = [](S s) {
    return std::min((*s.model->window_size)[0], (*s.model->window_size)[1]) < -1;
  };
  return {
      refuse({&Model::window_size, has_negative_side},
             {value(&Model::window_size), " has a side below -1"}, "use -1 for an unlimited side"),
      layer_list_rules(&Model::window_attn_skip_freq, windowed_layers, "([1]*3+[0])*2"),
      layer_list_rules(&Model::no_rope_freq, nope_layers, "([0]*3+[1])*2"),
      when(
          &LinearAttentionConfig::variant,
          layer_list_rules(&LinearAttentionConfig::freq, linear_attention_layers, "([1]*3+[0])*2")),
      tunes({&LinearAttentionConfig::freq}, &LinearAttentionConfig::variant),
      names_blocks_without_attention(&Model::window_attn_skip_freq, counted_windows, 0),
      names_blocks_without_attention(&Model::no_rope_freq, nope_layers, 1),
      tunes({&Model::window_attn_skip_freq}, has_local_layers()),
      excludes(&Model::window_size, &Model::attention_chunk_size),
      needs({has_layers_with_experts, {&Model::hybrid_layer_pattern, " with E"}},
            &Moe::num_experts),
      excludes(&Model::apply_residual_connection_post_layernorm,
               is(&Model::norm_placement, "post")),
      tunes({&Model::add_norm_bias}, is(&Model::normalization, "LayerNorm")),
      needs(&Model::share_block_norm, &Model::parallel_residual),
      excludes(&Model::parallel_residual, is(&Model::norm_placement, "post")),
      excludes(&Model::parallel_residual, &Model::apply_residual_connection_post_layernorm),
      excludes(&Model::parallel_residual, &Model::hybrid_layer_pattern),
      note({&Optimizer::qk_clip, any({&Model::qk_layernorm, &Model::qk_l2_norm}),
            without(&Model::multi_latent_attention)},
           "harms this model: its norms of queries and keys undo the factor, so the weights shrink "
           "at each step and the scores stay"),
      needs(is(&Model::qk_layernorm_scope, "all_heads"), &Model::qk_layernorm),
      needs(is(&Model::qk_layernorm_scope, "each_head"), &Model::qk_layernorm),
      needs(is(&Model::qk_layernorm_placement, "after_rotary"), &Model::qk_layernorm),
      needs(&Model::qk_l2_norm, {is_rotary, {&Model::position_embedding_type, " rope"}}),
      when(&Model::qk_layernorm, needs(is(&Model::qk_layernorm_scope, "all_heads"),
                                       is(&Model::normalization, "RMSNorm"))),
  };
}

bool predicts_behind_sequences(const Settings& s) {
  return s.model->mtp_num_layers > 0 && s.training->seq_length > 0 &&
         s.model->mtp_num_layers >= s.training->seq_length;
}

bool lacks_depths(const Settings& s) {
  return s.model->mtp_num_layers > 0 && !s.model->hybrid_layer_pattern.empty() &&
         HybridPattern(s.model->hybrid_layer_pattern).num_depths == 0;
}

Rules multi_token_rules() {
  const Condition depths = &Model::mtp_num_layers;
  return {
      tunes({&Model::mtp_loss_scaling_factor, &Model::mtp_use_repeated_layer}, depths),
      excludes(depths, is(&Model::position_embedding_type, "learned_absolute"),
               {.fix = {"add ", &Model::position_embedding_type, " rope"}}),
      rule(lacks_depths,
           {&Model::mtp_num_layers,
            {"says nothing of the layers of a depth beside ", &Model::hybrid_layer_pattern},
            {"write them behind a / for each depth, such as ", &Model::hybrid_layer_pattern,
             " M-M-*E/*E"}}),
      rule(predicts_behind_sequences,
           {&Model::mtp_num_layers,
            {value(&Model::mtp_num_layers), " is not below ", with_value(&Training::seq_length),
             ", so the last depths have no labels"},
            {"lower ", &Model::mtp_num_layers}}),
  };
}

}  // namespace

Problems validate_model(const Settings& settings, const FieldNames& skip, const FieldNames* noted) {
  static const Rules rules = {size_rules(),        position_rules(),
                              attention_rules(),   latent_attention_rules(),
                              multi_token_rules(), gate_rules(),
                              moe_rules(),         recurrent_rules(),
                              sharding_rules(),    context_sharding_rules(),
                              layout_rules(),      recomputed_module_rules()};
  return evaluate(rules, settings, skip, noted);
}

Problems validate_model(const TransformerConfig& model) {
  Settings settings;
  settings.model = model;
  return validate_model(settings);
}

}  // namespace megatron
