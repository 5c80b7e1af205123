#include "megatron/training/layout_check/scaled_run.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "megatron/base/division.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/context_sizes.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/config/data_config.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/rerun_config.h"
#include "megatron/config/resolve.h"
#include "megatron/config/scheduler_config.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/config/world_rules.h"
#include "megatron/models/freeze.h"
#include "megatron/models/model_spec.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

constexpr std::int64_t kHeadChannels = 16, kLeastTokens = 32, kLeastWidth = 32,
                       kVocabularyMultiple = 8, kLeastVocabulary = 64, kLayersOfAChunk = 2;

/// Returns the values of some layers; none if every layer has the same, which a list leaves out.
template <class List>
List pick(const List& values, const std::vector<std::int64_t>& layers) {
  List picked;
  for (std::size_t i = 0; i < layers.size() && values.size() > 1; ++i)
    picked.push_back(values.at(static_cast<std::size_t>(layers[i])));
  return values.size() > 1 ? picked : values;
}

/// Scales one run.
class Scaling {
 public:
  Scaling(const RunConfig& run, std::int64_t world_size)
      : scaled_{.run = run, .world_size = world_size, .sizes = {}, .left_out = {}},
        s_(scaled_.run.options.settings),
        sizes_(mesh_sizes(*s_.parallel)) {
    resolve(s_, data_parallel_size(sizes_, world_size));
  }

  ScaledRun result(std::int64_t max_ranks) && {
    // The batch first: it depends on sizes of the run.
    const std::int64_t microbatches = num_microbatches();
    scale_layers();
    scale_mixers();
    scale_attention();
    scale_width(*s_.model, &TransformerConfig::ffn_hidden_size, sizes_.tp);
    scale_experts();
    scale_sequence();
    scale_ranks(max_ranks);
    scale_batch(microbatches);
    set_vocabulary();
    leave_out_settings();
    set_values_of_check();
    return std::move(scaled_);
  }

 private:
  void set(const std::string& what, std::int64_t& size, std::int64_t to) {
    if (size == to) return;
    scaled_.sizes.push_back({what, size, to});
    size = to;
  }
  template <class T>
  void set(T& config, std::int64_t T::*member, std::int64_t to) {
    set(Setting(member).flag(), config.*member, to);
  }
  /// Notes once that the check leaves `what` out; "": nothing to note.
  void leave_out(std::string_view what) {
    if (!what.empty() && std::ranges::count(scaled_.left_out, what) == 0)
      scaled_.left_out.emplace_back(what);
  }

  std::int64_t num_microbatches() const {
    return NumMicrobatchesCalculator(*s_.training, data_parallel_size(sizes_, scaled_.world_size))
        .at(0)
        .num_microbatches;
  }

  /// Returns the layers that stay: of each chunk the first and the last and one of each further
  /// kind, but equally many of all chunks; or all where flags place single layers.
  std::vector<std::int64_t> kept_layers() const {
    const ParallelConfig& p = *s_.parallel;
    const std::int64_t count = s_.model->num_layers,
                       chunks = sizes_.pp * num_pipeline_chunks(p, count);
    std::vector<std::int64_t> kept;
    const bool is_uneven =
        !p.pipeline_model_parallel_layout.empty() || p.decoder_first_pipeline_num_layers ||
        p.decoder_last_pipeline_num_layers || p.account_for_embedding_in_pipeline_split ||
        p.account_for_loss_in_pipeline_split || p.pipeline_split != "even" ||
        !s_.memory->recompute.recompute_layers.empty() || !s_.memory->activation_plan.empty() ||
        count % chunks != 0;
    const std::int64_t of_chunk = is_uneven ? 1 : count / chunks;
    if (of_chunk <= kLayersOfAChunk) {
      kept.resize(static_cast<std::size_t>(count));
      std::iota(kept.begin(), kept.end(), 0);
      return kept;
    }
    const std::int64_t of_small_chunk = layers_of_small_chunk(of_chunk);
    for (std::int64_t first = 0; first < count; first += of_chunk) {
      const std::vector<std::int64_t> layers = layers_to_keep(first, of_chunk, of_small_chunk);
      kept.insert(kept.end(), layers.begin(), layers.end());
    }
    return kept;
  }

  /// Returns the first and the last layer of a chunk and the first one of each further kind, and as
  /// many others as it takes to have `least`, ascending.
  std::vector<std::int64_t> layers_to_keep(std::int64_t first, std::int64_t of_chunk,
                                           std::int64_t least) const {
    std::set<std::int64_t> kept{first, first + of_chunk - 1};
    ByKind<bool> kinds;
    for (const std::int64_t layer : kept) kinds[s_.model->kind(layer)] = true;
    for (std::int64_t layer = first; layer < first + of_chunk; ++layer)
      if (!std::exchange(kinds[s_.model->kind(layer)], true)) kept.insert(layer);
    for (std::int64_t layer = first; std::ssize(kept) < least; ++layer) kept.insert(layer);
    return {kept.begin(), kept.end()};
  }

  std::int64_t layers_of_small_chunk(std::int64_t of_chunk) const {
    std::int64_t most = kLayersOfAChunk;
    for (std::int64_t first = 0; first < s_.model->num_layers; first += of_chunk)
      most = std::max<std::int64_t>(most, std::ssize(layers_to_keep(first, of_chunk, 0)));
    return most;
  }

  void scale_layers() {
    const std::vector<std::int64_t> kept = kept_layers();
    TransformerConfig& model = *s_.model;
    if (std::ssize(kept) == model.num_layers) return;
    const auto experts = pick(expert_layers(model), kept),
               windows = pick(windowed_layers(model), kept), nope = pick(nope_layers(model), kept),
               linear = pick(linear_attention_layers(model), kept);
    HybridPattern pattern(model.hybrid_layer_pattern);
    pattern.layers = pick(pattern.layers, kept);
    model.hybrid_layer_pattern = pattern.text();
    ParallelConfig& p = *s_.parallel;
    p.cp_comm_type = pick(p.cp_comm_type, kept);
    if (p.num_layers_per_virtual_pipeline_stage)
      p.num_layers_per_virtual_pipeline_stage =
          std::ssize(kept) / (sizes_.pp * num_pipeline_chunks(p, model.num_layers));
    auto& group = s_.memory->recompute.recompute_num_layers;
    if (group) group = std::min(*group, kLayersOfAChunk);
    if (model.decoder_num_layers > 0)
      set(model, &TransformerConfig::decoder_num_layers,
          std::ranges::count_if(kept, [encoder = model.encoder_num_layers()](std::int64_t layer) {
            return layer >= encoder;
          }));
    set(model, &TransformerConfig::num_layers, std::ssize(kept));
    set_experts(model, experts);
    set_windows(model, windows);
    set_nope(model, nope);
    set_linear_attention(model, linear);
  }

  /// Returns what may divide heads: ranks of tp, and those that all-to-all context parallelism
  /// adds.
  std::int64_t head_modulus() const {
    const bool all_exchange = std::ranges::count(s_.parallel->cp_comm_type, CpCommType::a2a) > 0;
    return sizes_.tp * (all_exchange ? sizes_.cp : cp_a2a_size(*s_.parallel));
  }

  void scale_attention() {
    TransformerConfig& model = *s_.model;
    const std::int64_t modulus = head_modulus(), groups = model.query_groups(),
                       heads = model.num_attention_heads, of_group = heads / groups;
    const bool fills_width = model.hidden_size == heads * model.kv_channels;
    const std::int64_t least = groups > modulus ? 2 * modulus : 2,
                       fewer_groups = shrink(groups, modulus, std::min(least, groups));
    std::int64_t sharers = std::min<std::int64_t>(2, of_group);
    while (sharers < of_group &&
           std::gcd(fewer_groups * sharers, modulus) != std::gcd(heads, modulus))
      ++sharers;
    set(model, &TransformerConfig::num_attention_heads, fewer_groups * sharers);
    if (model.group_query_attention)
      set(model, &TransformerConfig::num_query_groups, fewer_groups);
    else
      model.num_query_groups = fewer_groups * sharers;
    if (model.multi_latent_attention) {
      for (const auto member :
           {&TransformerConfig::q_lora_rank, &TransformerConfig::kv_lora_rank,
            &TransformerConfig::qk_head_dim, &TransformerConfig::qk_pos_emb_head_dim,
            &TransformerConfig::v_head_dim})
        set(model, member, std::min(model.*member, kHeadChannels));
    }
    set(model, &TransformerConfig::kv_channels, std::min(model.kv_channels, kHeadChannels));
    const std::int64_t width = fills_width ? model.num_attention_heads * model.kv_channels
                                           : shrink(model.hidden_size, 4 * sizes_.tp,
                                                    std::min(model.hidden_size, 2 * kLeastWidth));
    set(model, &TransformerConfig::hidden_size, width);
  }

  /// Scales the heads of recurrent layers, of which `groups` have `heads`. The ranks of tp and cp
  /// divide them.
  template <class T>
  void scale_recurrent(T& config, std::int64_t T::*groups, std::int64_t T::*heads) {
    const std::int64_t before = config.*groups, of_group = config.*heads / before,
                       ranks = sizes_.tp * sizes_.cp;
    set(config, groups, shrink(before, ranks, std::min<std::int64_t>(before, 2)));
    std::int64_t sharers = std::min<std::int64_t>(2, of_group);
    while (sharers < of_group && config.*groups * sharers % ranks != 0) ++sharers;
    set(config, heads, config.*groups * sharers);
  }

  void scale_mixers() {
    TransformerConfig& model = *s_.model;
    if (has_mixer(model, MixerKind::mamba)) {
      MambaConfig& mamba = model.mamba;
      mamba.num_heads = model.recurrent_sizes(MixerKind::mamba).heads;
      if (mamba.norm_groups > 1) mamba.norm_groups = 0;
      scale_recurrent(mamba, &MambaConfig::num_groups, &MambaConfig::num_heads);
      for (const auto member : {&MambaConfig::state_dim, &MambaConfig::head_dim})
        set(mamba, member, std::min(mamba.*member, kHeadChannels));
    }
    if (!has_mixer(model, MixerKind::gated_delta_net)) return;
    LinearAttentionConfig& linear = model.linear_attention;
    scale_recurrent(linear, &LinearAttentionConfig::num_key_heads,
                    &LinearAttentionConfig::num_value_heads);
    for (const auto member :
         {&LinearAttentionConfig::key_head_dim, &LinearAttentionConfig::value_head_dim})
      set(linear, member, std::min(linear.*member, kHeadChannels));
  }

  template <class T>
  void scale_width(T& config, std::int64_t T::*member, std::int64_t modulus) {
    const std::int64_t width = config.*member;
    if (width > 0)
      set(config, member,
          shrink(width, modulus, std::min(width, std::max(kLeastWidth, 2 * modulus))));
  }

  void scale_experts() {
    MoeConfig& moe = s_.model->moe;
    if (moe.num_experts == 0) return;
    scale_width(moe, &MoeConfig::ffn_hidden_size, sizes_.expert_tp());
    scale_width(moe, &MoeConfig::shared_expert_intermediate_size, sizes_.tp);
    scale_width(moe, &MoeConfig::latent_size, 1);
    for (LoadBalancing& type : moe.router_load_balancing_type) {
      if (type != LoadBalancing::global_aux_loss) continue;
      leave_out("global_aux_loss (it depends on the data-parallel ranks; aux_loss is used)");
      type = LoadBalancing::aux_loss;
    }
    const std::int64_t groups = moe.router_num_groups.value_or(1),
                       chosen_groups = moe.router_group_topk.value_or(groups),
                       modulus = std::lcm(sizes_.ep, groups);
    // Enough for top-k within the chosen groups, and two on a rank where there were several.
    const std::int64_t least = std::max(ceil_div(moe.router_topk, chosen_groups) * groups + 1,
                                        moe.num_experts > sizes_.ep ? 2 * sizes_.ep : sizes_.ep);
    set(moe, &MoeConfig::num_experts,
        shrink(moe.num_experts, modulus, std::min(moe.num_experts, least)));
  }

  void scale_sequence() {
    TrainingConfig& t = *s_.training;
    const std::int64_t modulus = 2 * sizes_.cp * sizes_.tp, before = t.seq_length;
    set(t, &TrainingConfig::seq_length,
        shrink(before, modulus, std::min(before, std::max(kLeastTokens, modulus))));
    s_.model->max_position_embeddings = t.seq_length + s_.model->position_offset;
    // These layouts keep some or all padding, which one rank must then have too.
    if (scaled_.run.options.model == "bert" && (sizes_.cp > 1 || s_.parallel->sequence_parallel))
      s_.data->keep_padding = true;
    set(*s_.data, &DataConfig::decoder_seq_length,
        std::min(s_.data->decoder_seq_length, t.seq_length));
    if (std::int64_t& chunk = s_.model->attention_chunk_size; chunk > 0)
      set(Setting(&TransformerConfig::attention_chunk_size).flag(), chunk,
          std::max<std::int64_t>(3, chunk * t.seq_length / before));
    if (!s_.model->window_size) return;
    for (std::int64_t& side : *s_.model->window_size)
      if (side > 0)
        set(Setting(&TransformerConfig::window_size).flag(), side,
            std::max<std::int64_t>(3, side * t.seq_length / before));
  }

  void scale_ranks(std::int64_t max_ranks) {
    const std::int64_t replica = sizes_.tp * sizes_.cp * sizes_.pp,
                       dp = scaled_.world_size / replica;
    if (scaled_.world_size <= max_ranks) return;
    // Experts and optimizer instances still divide them, and what several replicas shared several
    // still share.
    const std::int64_t experts = sizes_.expert_tp() * sizes_.ep, dense = sizes_.tp * sizes_.cp,
                       modulus = experts / std::gcd(experts, dense) *
                                 s_.parallel->num_distributed_optimizer_instances;
    std::int64_t fewer = dp;
    set("data-parallel ranks", fewer, shrink(dp, modulus, std::min(2 * modulus, dp)));
    scaled_.world_size = replica * fewer;
  }

  void scale_batch(std::int64_t microbatches) {
    TrainingConfig& t = *s_.training;
    const std::int64_t group =
        s_.parallel->microbatch_group_size_per_virtual_pipeline_stage.value_or(sizes_.pp);
    const std::int64_t least = sizes_.pp == 1 ? 2 : sizes_.pp + 1;
    set("microbatches", microbatches, shrink(microbatches, group, std::min(microbatches, least)));
    set(t, &TrainingConfig::micro_batch_size, std::min<std::int64_t>(t.micro_batch_size, 2));
    t.global_batch_size =
        microbatches * t.micro_batch_size * data_parallel_size(sizes_, scaled_.world_size);
  }

  /// A vocabulary that is padded if the run's is.
  void set_vocabulary() {
    TokenizerConfig& tokenizer = *s_.tokenizer;
    const std::int64_t before = s_.model->vocab_size,
                       of_run = tokenizer.make_vocab_size_divisible_by * sizes_.tp;
    tokenizer = {.tokenizer_type = "NullTokenizer",
                 .make_vocab_size_divisible_by = kVocabularyMultiple};
    const std::int64_t padded = round_up(kLeastVocabulary, kVocabularyMultiple * sizes_.tp);
    const bool is_padded = before == 0 || before % of_run != 0;
    tokenizer.vocab_size = is_padded ? padded - 3 : padded;
    s_.model->vocab_size = 0;
    if (before > 0)
      scaled_.sizes.push_back(
          {Setting(&TokenizerConfig::vocab_size).flag(), before, *tokenizer.vocab_size});
  }

  /// Gives the settings that the tables leave out of a check their defaults.
  void leave_out_settings() {
    for (const Field& field : settings_table().set().fields) {
      if (!field.left_out_of_check || field.get(&s_) == field.default_values) continue;
      leave_out(*field.left_out_of_check);
      copy_values(field, field.default_values, &s_);
    }
    MemoryConfig& memory = *s_.memory;
    memory.chooses_micro_batch_size = false;
    if (memory.recompute.recompute_granularity != "adaptive") return;
    leave_out("--recompute-granularity adaptive");
    memory.recompute.recompute_granularity.clear();
  }

  /// One step on mock data, which checks nothing else.
  void set_values_of_check() {
    s_.parallel->device = "cpu";
    s_.data->mock_data = true;
    s_.data->num_workers = 0;
    s_.rerun->rerun_mode = "disabled";
    s_.training->train_iters = 1;
    s_.training->eval_iters = 0;
    s_.scheduler->lr = 1e-2;
    // A gradient that is 0 but for rounding must not become a step of the size of the rate.
    s_.optimizer->adam_eps = 1e-2;
  }

  ScaledRun scaled_;
  Settings& s_;
  MeshSizes sizes_;
};

}  // namespace

std::int64_t shrink(std::int64_t value, std::int64_t modulus, std::int64_t least) {
  const std::int64_t divisor = std::gcd(value, modulus);
  for (std::int64_t small = round_up(least, divisor); small < value; small += divisor)
    if (std::gcd(small, modulus) == divisor) return small;
  return value;
}

ScaledRun scale_run(const RunConfig& run, std::int64_t world_size, std::int64_t max_ranks) {
  return Scaling(run, world_size).result(max_ranks);
}

void leave_out_unmatched_names(ScaledRun& scaled, const ModelFamily& family) {
  Settings& settings = scaled.run.options.settings;
  TransformerConfig model = *settings.model;
  model.vocab_size = *settings.tokenizer->vocab_size;
  resolve(model);
  const auto whole = family.make(model, Rank{}, {});
  for (const auto member : {&OptimizerConfig::train_only, &OptimizerConfig::freeze}) {
    const std::string flag = Setting(member).flag();
    for (const std::string& text : take_unmatched(*whole, flag, *settings.optimizer.*member))
      scaled.left_out.push_back(flag + " '" + text + "' (matches no layer here)");
  }
}

RunConfig on_one_rank(const RunConfig& scaled) {
  RunConfig alone = scaled;
  Settings& settings = alone.options.settings;
  settings.parallel = ParallelConfig{};
  settings.parallel->device = "cpu";
  settings.memory = MemoryConfig{};
  return alone;
}

}  // namespace megatron
