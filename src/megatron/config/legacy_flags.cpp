#include "megatron/config/legacy_flags.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "megatron/base/words.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/config/data_config.h"
#include "megatron/config/legacy_config.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/setting.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_enums.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

struct ActivationSwitch {
  const char* name;
  bool LegacyFlags::*given;
  Activation activation;
  bool is_gated;
  const char* help;
};

constexpr std::array kActivationSwitches{
    ActivationSwitch{"swiglu", &LegacyFlags::swiglu, Activation::silu, true,
                     "use SwiGLU: --activation silu --gated-linear-unit"},
    ActivationSwitch{"geglu", &LegacyFlags::geglu, Activation::gelu, true,
                     "use GEGLU: --activation gelu --gated-linear-unit"},
    ActivationSwitch{"quick_geglu", &LegacyFlags::quick_geglu, Activation::quick_gelu, true,
                     "use --activation quick_gelu --gated-linear-unit"},
    ActivationSwitch{"squared_relu", &LegacyFlags::squared_relu, Activation::squared_relu, false,
                     "use --activation squared_relu"},
    ActivationSwitch{"openai_gelu", &LegacyFlags::openai_gelu, Activation::gelu_tanh, false,
                     "use --activation gelu_tanh"},
};

/// A flag that sets others. Help and dumps leave it out.
struct Shorthand {
  const char* name;
  const char* value;  ///< the value that the row is about; "": any, * for a switch
  const char* words;  ///< SETTING=VALUE; $ is the flag's value, # is one less
};

/// Main gradients in bf16 travel in bf16 here, which is --grad-reduce-in-bf16 of Megatron's DDP.
/// Megatron-LM v1.0 to v2.6 recomputed whole layers with --checkpoint-activations, later with
/// --activations-checkpoint-method. The window of Pai-Megatron-Patch includes the token itself.
/// --enable-gpt-oss gives the YaRN of megatron/post_training/model_builder.py.
constexpr std::array kShorthands{
    Shorthand{"checkpoint_activations", "*", "recompute_granularity=full"},
    Shorthand{"activations_checkpoint_method", "", "recompute_granularity=full recompute_method=$"},
    Shorthand{"activation_checkpoint_interval", "",
              "recompute_granularity=full recompute_num_layers=$"},
    Shorthand{"sliding_window", "", "window_size=#,0"},
    Shorthand{"activation_func", "gelu", "activation=gelu"},
    Shorthand{"activation_func", "swiglu", "activation=silu gated_linear_unit=true"},
    Shorthand{"activation_func", "squaredrelu", "activation=squared_relu"},
    Shorthand{"overlap_moe_expert_parallel_comm", "*", "pipeline_schedule=combined-1f1b"},
    Shorthand{"ft_timeout", "",
              "ft_rank_section_timeouts=setup:$,step:$,checkpointing:$ "
              "ft_rank_out_of_section_timeout=$"},
    Shorthand{"megatron_fsdp_main_grads_dtype", "auto", ""},
    Shorthand{"megatron_fsdp_main_grads_dtype", "fp32", "grad_reduce_in_bf16=false"},
    Shorthand{"megatron_fsdp_main_grads_dtype", "bf16", "grad_reduce_in_bf16=true"},
    Shorthand{"no_weight_decay_cond_type", "apply_wd_to_qk_layernorm",
              "apply_wd_to_qk_layernorm=true"},
    Shorthand{"enable_gpt_oss", "*",
              "position_embedding_type=yarn rope_scaling_type=yarn rope_scaling_factor=32 "
              "rope_original_max_position_embeddings=131072 yarn_beta_fast=32 yarn_beta_slow=1 "
              "yarn_mscale=1 yarn_mscale_all_dim=0 yarn_correction_range_round_to_int=false"},
};

std::string one_less(const std::string& value) {
  const std::int64_t number = integer_value(value);
  if (number < 1) throw FieldError{"must be at least 1, got " + value};
  return std::to_string(number - 1);
}

/// Returns a pattern with the flag's value. Throws FieldError if # needs a number above 0.
std::string filled(const std::string& pattern, const std::string& value) {
  std::string text;
  for (const char c : pattern)
    text += c == '$' ? value : c == '#' ? one_less(value) : std::string(1, c);
  return text;
}

void add_shorthands(FieldTable<Settings>& t) {
  for (const Shorthand& item : kShorthands) {
    std::vector<std::string> values;
    for (const Shorthand& row : kShorthands)
      if (row.name == std::string_view(item.name) && *row.value) values.emplace_back(row.value);
    const bool is_switch = *item.value == '*';
    if (t.set().find_name(item.name)) continue;
    t.custom(
         item.name, is_switch ? ValueKind::boolean : ValueKind::text,
         [=](Settings& s, std::span<const std::string> given) {
           const std::string& value = single_value(given);
           const bool is_off = is_none(value) || (is_switch ? !boolean_value(value) : value == "0");
           s.legacy->shorthands[item.name] = is_off ? "" : is_switch ? "*" : value;
         },
         [](const Settings&) { return std::vector<std::string>{}; },
         std::string("sets ") + item.words)
        .choices(is_switch ? std::vector<std::string>{} : values)
        .optional()
        .hidden();
  }
}

FieldBuilder add_switch(FieldTable<Settings>& t, const char* name, bool LegacyFlags::*given,
                        std::function<bool(const Settings&)> is_on, const char* help) {
  return t
      .custom(
          name, ValueKind::boolean,
          [given](Settings& s, std::span<const std::string> values) {
            (*s.legacy).*given = boolean_value(single_value(values));
          },
          [is_on = std::move(is_on)](const Settings& s) {
            return std::vector<std::string>{is_on(s) ? "true" : "false"};
          },
          help)
      .stores(given);
}

FieldBuilder add_factor(FieldTable<Settings>& t, const char* name,
                        std::optional<double> LegacyFlags::*given, RopeScaling shown_for,
                        const char* help) {
  return t
      .custom(
          name, ValueKind::number,
          [given](Settings& s, std::span<const std::string> values) {
            const std::string& value = single_value(values);
            (*s.legacy).*given = is_none(value) ? std::nullopt : std::optional(number_value(value));
          },
          [shown_for](const Settings& s) {
            const bool is_shown = s.model->rope_scaling_type == shown_for;
            return is_shown ? std::vector<std::string>{number_text(s.model->rope_scaling_factor)}
                            : std::vector<std::string>{};
          },
          help)
      .stores(given)
      .above(0)
      .optional();
}

void add_activations(FieldTable<Settings>& t) {
  t.group("MLP");
  for (const ActivationSwitch& item : kActivationSwitches) {
    const auto is_on = [item](const Settings& s) {
      return s.model->activation == item.activation && s.model->gated_linear_unit == item.is_gated;
    };
    add_switch(t, item.name, item.given, is_on, item.help);
  }
}

void add_positions(FieldTable<Settings>& t) {
  t.group("Positions");
  add_switch(
      t, "use_rotary_position_embeddings", &LegacyFlags::use_rotary_position_embeddings,
      [](const Settings& s) { return s.model->position_embedding_type == PositionEmbedding::rope; },
      "use rotary positions, even if --position-embedding-type says otherwise (deprecated in "
      "Megatron-LM)")
      .alias("use-llama2-rotary-position-embeddings")
      .alias("use-mistral-rotary-position-embeddings");
  add_switch(
      t, "no_position_embedding", &LegacyFlags::no_position_embedding,
      [](const Settings& s) { return s.legacy->no_position_embedding; },
      "require a model without learned positions (deprecated in Megatron-LM)")
      .off_flag("add-position-embedding")
      .hidden();
  add_switch(
      t, "use_rope_scaling", &LegacyFlags::use_rope_scaling,
      [](const Settings& s) { return s.model->rope_scaling_type == RopeScaling::llama3; },
      "scale rotary positions as Llama 3 does: --rope-scaling-type llama3; multi-latent attention "
      "does not read it");
  add_factor(
      t, "rotary_seq_len_interpolation_factor", &LegacyFlags::rotary_seq_len_interpolation_factor,
      RopeScaling::linear,
      "divide rotary positions by this factor: --rope-scaling-type linear --rope-scaling-factor X")
      .alias("rotary-scale-factor");
  add_factor(t, "rotary_scaling_factor", &LegacyFlags::rotary_scaling_factor, RopeScaling::yarn,
             "scale rotary positions by this factor with YaRN; default with "
             "--position-embedding-type yarn, or with multi-latent attention: 1");
  t.custom(
       "rope_type", ValueKind::text,
       [](Settings& s, std::span<const std::string> values) {
         read_values(s.legacy->rope_type, values);
       },
       [](const Settings& s) {
         const RopeScaling scaling = s.model->rope_scaling_type;
         const bool is_yarn = scaling == RopeScaling::yarn;
         return s.model->multi_latent_attention && (is_yarn || scaling == RopeScaling::none)
                    ? std::vector<std::string>{is_yarn ? "yarn" : "rope"}
                    : std::vector<std::string>{};
       },
       "rotary positions of multi-latent attention: rope, or yarn, which is the default")
      .stores(&LegacyFlags::rope_type)
      .choices({"rope", "yarn"})
      .none_is_empty();
}

/// Translates the flags of one run. A setting that a source of higher precedence gives by its own
/// name keeps its value.
class Translation {
 public:
  /// `loaded` is the architecture of the checkpoint that the run loads, or null.
  Translation(Settings& settings, ParseResult& parsed, Problems& problems,
              const TransformerConfig* loaded = nullptr)
      : settings_(settings),
        model_(*settings.model),
        legacy_(*settings.legacy),
        parsed_(parsed),
        problems_(problems),
        loaded_(loaded) {}

  void run() {
    std::string& granularity = settings_.memory->recompute.recompute_granularity;
    if (granularity == "partial") granularity = "selective";
    for (const Shorthand& item : kShorthands) translate_shorthand(item);
    if (granularity == "full" && settings_.memory->recompute.recompute_activations)
      granularity = "selective", note("replaces full by selective", "recompute_activations");
    translate_activation();
    translate_positions();
    translate_tokenizer_type();
    translate_pattern();
    translate_levels();
    translate_train_data();
  }

  void translate_rope_scaling() {
    if (loaded_) take_positions(*loaded_);
    translate_rope_type();
    const bool is_yarn = model_.position_embedding_type == PositionEmbedding::yarn ||
                         model_.rope_scaling_type == RopeScaling::yarn;
    const auto interpolation = is_overruled("use_rope_scaling", kInterpolation)
                                   ? std::nullopt
                                   : legacy_.rotary_seq_len_interpolation_factor;
    const bool is_llama3 = legacy_.use_rope_scaling && !model_.multi_latent_attention &&
                           !(interpolation && is_overruled(kInterpolation, "use_rope_scaling"));
    if (interpolation && (is_llama3 || is_yarn)) {
      problems_.add({where(kInterpolation),
                     "cannot be combined with another scaling of rotary positions",
                     "leave it out, or leave --use-rope-scaling and YaRN out"});
      return;
    }
    if (is_llama3) set("rope_scaling_type", "llama3", "use_rope_scaling");
    if (interpolation) translate_interpolation(*interpolation);
    if (is_yarn) translate_yarn();
    if (legacy_.rotary_scaling_factor && !is_yarn && *legacy_.rotary_scaling_factor != 1)
      note("without effect: only YaRN uses it; --use-rope-scaling uses --rope-scaling-factor",
           "rotary_scaling_factor");
  }

 private:
  std::string where(std::string_view name) const { return parsed_.origin(name).where; }
  bool is_overruled(std::string_view target, std::string_view legacy) const {
    return parsed_.origin(target).kind > parsed_.origin(legacy).kind;
  }
  void mark(const std::string& target, std::string_view legacy) {
    parsed_.origins[target] = parsed_.origin(legacy);
  }
  void note(const std::string& remark, std::string_view legacy) {
    parsed_.notes[remark].push_back(where(legacy));
  }

  /// Sets a setting. It is a contradiction if the same source gives another value by its own name,
  /// unless that is false, which files write of whatever is not given.
  void set(const std::string& target, const std::string& value, const char* legacy) {
    if (is_overruled(target, legacy)) return;
    const Field& field = *settings_table().set().find_name(target);
    const std::vector<std::string> before = field.get(&settings_);
    assign(field, &settings_, std::vector{value});
    const Origin::Kind kind = parsed_.origin(legacy).kind;
    const bool is_given = parsed_.is_set(target) && parsed_.origin(target).kind == kind,
               may_be_default = kind == Origin::Kind::file && join_values(before) == "false";
    if (is_given && before != field.get(&settings_) && !may_be_default)
      problems_.add({where(legacy), "contradicts " + where(target), "give one of the two"});
    else
      mark(target, legacy);
  }

  void translate_shorthand(const Shorthand& item) {
    const auto given = legacy_.shorthands.find(item.name);
    if (given == legacy_.shorthands.end() || given->second.empty() ||
        (*item.value && given->second != item.value))
      return;
    if (item.name == std::string_view("enable_gpt_oss") && !parsed_.is_set("modelopt_enabled"))
      return note("without effect, as in Megatron-LM: there is no --modelopt-enabled", item.name);
    try {
      for (const std::string& word : split_words(item.words)) {
        const std::string target = word.substr(0, word.find('='));
        if (target == "grad_reduce_in_bf16" && !settings_.parallel->use_megatron_fsdp)
          note("without effect: there is no --use-megatron-fsdp", item.name);
        else if (target == "pipeline_schedule" &&
                 settings_.parallel->pipeline_model_parallel_size == 1)
          note("without effect: --pipeline-model-parallel-size is 1", item.name);
        else
          set(target, filled(word.substr(target.size() + 1), given->second), item.name);
      }
    } catch (const FieldError& error) {
      problems_.add({where(item.name) + ": " + error.reason, "", error.fix});
    }
  }

  void translate_activation() {
    const ActivationSwitch* chosen = nullptr;
    for (const ActivationSwitch& item : kActivationSwitches) {
      if (!(legacy_.*item.given)) continue;
      if (chosen && parsed_.origin(chosen->name).kind == parsed_.origin(item.name).kind) {
        problems_.add({where(item.name), "excludes " + where(chosen->name), "give one of the two"});
        return;
      }
      if (!chosen || !is_overruled(chosen->name, item.name)) chosen = &item;
    }
    if (!chosen) return;
    set("activation", write_values(chosen->activation)[0], chosen->name);
    set("gated_linear_unit", chosen->is_gated ? "true" : "false", chosen->name);
  }

  /// --use-rotary-position-embeddings overrides --position-embedding-type, as in Megatron-LM.
  /// model_rules.cpp checks --no-position-embedding once the architecture is complete.
  void translate_positions() {
    constexpr const char* kTarget = "position_embedding_type";
    constexpr const char* kRotary = "use_rotary_position_embeddings";
    if (legacy_.use_rotary_position_embeddings && !is_overruled(kTarget, kRotary)) {
      if (parsed_.is_set(kTarget) && model_.position_embedding_type != PositionEmbedding::rope)
        note("wins over " + where(kTarget) + ", as in Megatron-LM: positions are rotary", kRotary);
      model_.position_embedding_type = PositionEmbedding::rope;
      mark(kTarget, kRotary);
    }
    if (legacy_.no_position_embedding)
      note(
          "concerns learned positions only: --position-embedding-type decides (deprecated in "
          "Megatron-LM)",
          "no_position_embedding");
  }

  /// The pattern gives the number of layers, as in Megatron-LM, and its | are the pipeline's
  /// layout.
  void translate_pattern() {
    constexpr const char* kPattern = "hybrid_layer_pattern";
    std::string& pattern = model_.hybrid_layer_pattern;
    if (pattern.empty()) return;
    const HybridPattern hybrid(pattern);
    std::string stages;
    for (const char symbol : pattern.substr(0, pattern.find('/')))
      stages += symbol == '|' ? '|' : 't';
    stages.append(static_cast<std::size_t>(hybrid.num_depths), 'm');
    const auto num_stages = std::ranges::count(stages, '|') + 1;
    const std::int64_t num_ranks = settings_.parallel->pipeline_model_parallel_size;
    if (std::erase(pattern, '|') > 0) {
      if (num_stages % num_ranks != 0)
        problems_.add({where(kPattern),
                       "has " + std::to_string(num_stages) +
                           " stages, no multiple of --pipeline-model-parallel-size " +
                           std::to_string(num_ranks),
                       "add or remove a |, which ends a stage; a stage may be empty"});
      else if (num_ranks > 1 && !is_divided_beside(kPattern, num_stages / num_ranks))
        set("pipeline_model_parallel_layout", "E" + stages + "L", kPattern);
      else if (num_ranks == 1)
        note("its | are without effect: --pipeline-model-parallel-size is 1", kPattern);
    }
    const auto count = [&](const char* field, std::int64_t& given, std::int64_t named,
                           const char* what) {
      if (parsed_.is_set(field) && given != named)
        note("has " + std::to_string(named) + what + " is ignored", kPattern);
      given = named;
    };
    count("num_layers", model_.num_layers, std::ssize(hybrid.layers), " layers: --num-layers");
    if (hybrid.num_depths > 0)
      count("mtp_num_layers", model_.mtp_num_layers, hybrid.num_depths,
            " depths of multi-token prediction: --mtp-num-layers");
  }

  /// Refuses flags that divide the layers over stages, as the | of the pattern do.
  bool is_divided_beside(const char* pattern, std::int64_t stages_of_rank) {
    bool is_divided = false;
    for (const Setting& other : std::initializer_list<Setting>{
             &ParallelConfig::num_virtual_stages_per_pipeline_rank,
             &ParallelConfig::num_layers_per_virtual_pipeline_stage,
             &ParallelConfig::decoder_first_pipeline_num_layers,
             &ParallelConfig::decoder_last_pipeline_num_layers,
             &ParallelConfig::account_for_embedding_in_pipeline_split,
             &ParallelConfig::account_for_loss_in_pipeline_split, &ParallelConfig::pipeline_split})
      if (other.is_given(settings_)) {
        is_divided = true;
        problems_.add({where(pattern),
                       "its | end the stages of the pipeline, " + std::to_string(stages_of_rank) +
                           " on each rank, and " + other.flag() + " divides the layers too",
                       "leave " + other.flag() + " out, or remove every |"});
      }
    return is_divided;
  }

  /// Pai-Megatron-Patch reads all data from --train-data-path and divides it by --split, which
  /// Megatron-LM refuses beside a data set for each split.
  void translate_train_data() {
    DataConfig& data = *settings_.data;
    const bool has_others = !data.valid_data_path.empty() || !data.test_data_path.empty() ||
                            (!data.data_path.empty() && data.data_path != data.train_data_path);
    if (data.train_data_path.empty() || data.split.empty() || has_others) return;
    note("is read as --data-path, because --split divides it", "train_data_path");
    data.data_path = std::exchange(data.train_data_path, {});
    mark("data_path", "train_data_path");
  }

  /// An exchange of two levels, one of which has one rank, is that of the other level.
  void translate_levels() {
    ParallelConfig& parallel = *settings_.parallel;
    std::vector<std::int64_t>& sizes = parallel.hierarchical_context_parallel_sizes;
    if (sizes.size() != 2 || std::ranges::count(sizes, 1) == 0 ||
        std::ranges::count(parallel.cp_comm_type, CpCommType::a2a_p2p) == 0 ||
        sizes[0] * sizes[1] != parallel.context_parallel_size)
      return;
    note("has a level of one rank: the exchange is that of the other level",
         "hierarchical_context_parallel_sizes");
    std::ranges::replace(parallel.cp_comm_type, CpCommType::a2a_p2p,
                         sizes[0] == 1 ? CpCommType::p2p : CpCommType::a2a);
    sizes.clear();
  }

  /// Sets what no flag says of attention and positions to the loaded model's.
  void take_positions(const TransformerConfig& loaded) {
    const auto take = [&](const char* name, auto member) {
      if (!parsed_.is_set(name)) model_.*member = loaded.*member;
    };
    take("multi_latent_attention", &TransformerConfig::multi_latent_attention);
    const bool is_scaled = legacy_.use_rope_scaling && !model_.multi_latent_attention;
    if (is_scaled || legacy_.rotary_seq_len_interpolation_factor) return;
    take("position_embedding_type", &TransformerConfig::position_embedding_type);
    take("rope_scaling_type", &TransformerConfig::rope_scaling_type);
  }

  /// Multi-latent attention has YaRN, as in Megatron-LM, unless another scaling is given. Its
  /// rotary positions do not read --use-rope-scaling there.
  void translate_rope_type() {
    constexpr const char* kFlag = "rope_type";
    if (model_.multi_latent_attention && legacy_.use_rope_scaling)
      note(
          "without effect with --multi-latent-attention, as in Megatron-LM: --rope-type decides "
          "how its rotary positions are scaled",
          "use_rope_scaling");
    if (!model_.multi_latent_attention) {
      if (!legacy_.rope_type.empty())
        note("without effect: there is no --multi-latent-attention", kFlag);
    } else if (!legacy_.rope_type.empty()) {
      set("rope_scaling_type", legacy_.rope_type == "yarn" ? "yarn" : "none", kFlag);
    } else if (!loaded_ && !parsed_.is_set("rope_scaling_type") &&
               !legacy_.rotary_seq_len_interpolation_factor) {
      model_.rope_scaling_type = RopeScaling::yarn;
    }
  }

  void translate_interpolation(double factor) {
    set("rope_scaling_type", "linear", kInterpolation);
    if (model_.rope_scaling_type != RopeScaling::linear ||
        is_overruled("rope_scaling_factor", kInterpolation))
      return;
    if (parsed_.is_set("rope_scaling_factor"))
      note("without effect together with --rotary-seq-len-interpolation-factor, as in Megatron-LM",
           "rope_scaling_factor");
    model_.rope_scaling_factor = factor;
    mark("rope_scaling_factor", kInterpolation);
  }

  /// In Megatron-LM YaRN's factor is --rotary-scaling-factor (default 1), and the default context
  /// length of pretraining is 4096. With --rope-scaling-type yarn, which Megatron-LM does not have,
  /// --rope-scaling-factor sets the factor too.
  void translate_yarn() {
    constexpr const char* kFlag = "rotary_scaling_factor";
    if (!parsed_.is_set("rope_original_max_position_embeddings"))
      model_.rope_original_max_position_embeddings = 4096;
    if (legacy_.rotary_scaling_factor && !is_overruled("rope_scaling_factor", kFlag)) {
      if (parsed_.is_set("rope_scaling_factor"))
        note("without effect: YaRN uses --rotary-scaling-factor", "rope_scaling_factor");
      model_.rope_scaling_factor = *legacy_.rotary_scaling_factor;
      mark("rope_scaling_factor", kFlag);
    } else if (!loaded_ &&
               (!parsed_.is_set("rope_scaling_type") || !parsed_.is_set("rope_scaling_factor"))) {
      if (parsed_.is_set("rope_scaling_factor"))
        note("without effect, as in Megatron-LM: YaRN uses --rotary-scaling-factor",
             "rope_scaling_factor");
      model_.rope_scaling_factor = 1;
      parsed_.origins.erase("rope_scaling_factor");
    }
  }

  /// Applies the default of pretrain_gpt.py. A tokenizer.json is detected without a type.
  void translate_tokenizer_type() {
    TokenizerConfig& t = *settings_.tokenizer;
    const bool has_files = !t.vocab_file.empty() || !t.merge_file.empty();
    if (!t.has_type_or_model() && has_files) t.tokenizer_type = "GPT2BPETokenizer";
  }

  static constexpr const char* kInterpolation = "rotary_seq_len_interpolation_factor";

  Settings& settings_;
  TransformerConfig& model_;
  const LegacyFlags& legacy_;
  ParseResult& parsed_;
  Problems& problems_;
  const TransformerConfig* loaded_;
};

}  // namespace

const FieldTable<Settings>& legacy_table() {
  return field_table<Settings>([](auto& t) {
    add_activations(t);
    add_positions(t);
    add_shorthands(t);
  });
}

void translate_legacy_flags(Settings& settings, ParseResult& parsed, Problems& problems,
                            bool loads_model) {
  Translation(settings, parsed, problems).run();
  settings.legacy->rope_scaling_waits = loads_model;
  if (!loads_model) Translation(settings, parsed, problems).translate_rope_scaling();
}

void translate_rope_flags(Settings& settings, ParseResult& parsed, Problems& problems,
                          const TransformerConfig* loaded) {
  if (!std::exchange(settings.legacy->rope_scaling_waits, false)) return;
  Translation(settings, parsed, problems, loaded).translate_rope_scaling();
}

}  // namespace megatron
