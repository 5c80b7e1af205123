// Declares the flags by which a run uses less memory.
#include "megatron/config/settings_tables.h"

namespace megatron {
namespace {

const FieldTable<RecomputeConfig>& recompute_table() {
  using Config = RecomputeConfig;
  static const FieldTable<Config> table = [] {
    FieldTable<Config> t;
    t.group("Recomputation");
    t.field("recompute_granularity", &Config::recompute_granularity,
            "compute activations again in backward instead of keeping them; full: whole layers; "
            "selective: the parts of a layer that --recompute-modules names")
        .choices({"full", "selective"})
        .optional();
    t.field("recompute_activations", &Config::recompute_activations,
            "same as --recompute-granularity selective");
    t.field("recompute_method", &Config::recompute_method,
            "layers that full recomputes; uniform: all, in groups of --recompute-num-layers layers "
            "of which the first input is kept; block: the first --recompute-num-layers layers of "
            "each pipeline stage")
        .choices({"uniform", "block"})
        .optional()
        .alias("activations-checkpoint-method");
    t.field("recompute_num_layers", &Config::recompute_num_layers,
            "layers of a group (uniform) or of a pipeline stage (block); default 1")
        .at_least(1)
        .at_most(kMaxLayers)
        .alias("activations-checkpoint-num-layers")
        .alias("checkpoint-num-layers");
    t.field("recompute_modules", &Config::recompute_modules,
            "parts of a layer that selective recomputes; layernorm: the outputs of its norms; mlp, "
            "moe, shared_experts: all but the input of these blocks; core_attn and moe_act: the "
            "scores of attention and the activations of MLPs and experts, which the kernels here "
            "always recompute")
        .choices({"core_attn", "layernorm", "mlp", "moe", "moe_act", "shared_experts",
                  "mla_up_proj", "gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc"});
    t.field("moe_layer_recompute", &Config::moe_layer_recompute,
            "same as --recompute-granularity selective --recompute-modules moe");
    t.field("recompute_layers", &Config::recompute_layers,
            "layers that are recomputed, as a list with 1 = recomputed and 0 = kept, such as "
            "([1]*3+[0])*2; default all");
    t.field("num_microbatches_with_partial_activation_checkpoints",
            &Config::num_microbatches_with_partial_activation_checkpoints,
            "of the microbatches in flight on a pipeline rank, recompute every layer of all but "
            "this many")
        .at_least(0)
        .at_most(kMaxSize);
    t.field("distribute_saved_activations", &Config::distribute_saved_activations,
            "keep a slice of the inputs of recomputed layers on each tensor-parallel rank, and "
            "gather them in backward")
        .alias("distribute-checkpointed-activations");
    return t;
  }();
  return table;
}

}  // namespace

const FieldTable<MemoryConfig>& memory_table() {
  static const FieldTable<MemoryConfig> table = [] {
    FieldTable<MemoryConfig> t;
    t.include(&MemoryConfig::recompute, recompute_table());
    return t;
  }();
  return table;
}

}  // namespace megatron
