// Declares the flags by which a run uses less memory.
#include "megatron/config/layer_nodes.h"
#include "megatron/config/memory_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/settings_tables.h"
#include "megatron/config/size_limits.h"

namespace megatron {
namespace {

constexpr ConditionalNote kNothingIsRecomputed{
    [](const Settings& s) { return s.memory->recompute.recompute_granularity.empty(); },
    "without effect, as in Megatron-LM: there is no --recompute-granularity full"};

bool keeps_the_only_microbatch(const Settings& s) {
  const RecomputeConfig& config = s.memory->recompute;
  return s.parallel->pipeline_model_parallel_size == 1 &&
         config.num_microbatches_with_partial_activation_checkpoints.value_or(0) > 0;
}

/// Returns the nodes of layers, and those of Megatron-LM that no layer here has.
std::vector<std::string> recomputed_modules() {
  std::vector<std::string> names = node_names(kRecomputed | kRecomputedByKernel);
  for (const char* name : {"gdn_norm_out", "gdp_in_proj", "gdp_qkv", "mhc"})
    names.emplace_back(name);
  return names;
}

const FieldTable<RecomputeConfig>& recompute_table() {
  using Config = RecomputeConfig;
  return field_table<Config>([](auto& t) {
    t.group("Recomputation");
    t.field("recompute_granularity", &Config::recompute_granularity,
            "compute activations again in backward instead of keeping them; full: whole layers; "
            "selective, partial: the parts of a layer that --recompute-modules names; adaptive: "
            "same as --memory-budget auto")
        .choices({"full", "selective", "partial", "adaptive"})
        .none_is_empty();
    t.field("recompute_activations", &Config::recompute_activations,
            "same as --recompute-granularity selective");
    t.field("recompute_method", &Config::recompute_method,
            "layers that full recomputes; uniform: all, in groups of --recompute-num-layers layers "
            "of which the first input is kept; block: the first --recompute-num-layers layers of "
            "each pipeline stage")
        .choices({"uniform", "block"})
        .none_is_empty()
        .note(kNothingIsRecomputed);
    t.field("recompute_num_layers", &Config::recompute_num_layers,
            "layers of a group (uniform) or of a pipeline stage (block); default 1")
        .between(1, kMaxLayers)
        .alias("activations-checkpoint-num-layers")
        .alias("checkpoint-num-layers")
        .note(kNothingIsRecomputed);
    t.field("recompute_modules", &Config::recompute_modules,
            "parts of a layer that selective recomputes; layernorm: the outputs of its norms; mlp, "
            "moe, shared_experts: all but the input of these blocks; core_attn and moe_act: the "
            "scores of attention and the activations of MLPs and experts, which the kernels here "
            "always recompute; "
            "mla_up_proj: queries, keys and values of multi-latent attention")
        .choices(recomputed_modules())
        .none_is_empty();
    t.field("moe_layer_recompute", &Config::moe_layer_recompute,
            "same as --recompute-granularity selective --recompute-modules moe");
    t.field("recompute_layers", &Config::recompute_layers,
            "layers that are recomputed, as a list with 1 = recomputed and 0 = kept, such as "
            "([1]*3+[0])*2; default all");
    t.field("num_microbatches_with_partial_activation_checkpoints",
            &Config::num_microbatches_with_partial_activation_checkpoints,
            "of the microbatches in flight on a pipeline rank, recompute every layer of all but "
            "this many")
        .between(0, kMaxSize)
        .note({keeps_the_only_microbatch,
               "without effect: one microbatch is in flight without a pipeline"});
    t.field("distribute_saved_activations", &Config::distribute_saved_activations,
            "keep a slice of the inputs of recomputed layers on each tensor-parallel rank, and "
            "gather them in backward")
        .alias("distribute-checkpointed-activations");
  });
}

const FieldTable<OffloadConfig>& offload_table() {
  using Config = OffloadConfig;
  return field_table<Config>([](auto& t) {
    t.group("Offload").following().left_out_of_check();
    t.field("offload_folder", &Config::offload_folder,
            "folder on a local disk for what is offloaded; each rank keeps a file without a name "
            "there, which ends with the run; needed on a CPU")
        .value_name("DIR")
        .none_is_empty();
    t.field("optimizer_cpu_offload", &Config::optimizer_cpu_offload,
            "keep the optimizer's state and fp32 main weights in --offload-folder, or on a GPU in "
            "pinned memory of the host, and bring them in piece by piece during the update")
        .left_out_of_check("offload");
    t.field("optimizer_offload_fraction", &Config::optimizer_offload_fraction,
            "share of the optimizer's state that is offloaded, in whole weights")
        .between(0, 1);
    t.field("overlap_cpu_optimizer_d2h_h2d", &Config::overlap_cpu_optimizer_d2h_h2d,
            "read the next piece of offloaded optimizer state while one is updated");
    t.field("cpu_offloading", &Config::cpu_offloading,
            "offload the activations of layers between forward and backward: to pinned memory of "
            "the host on a GPU, to --offload-folder on a CPU")
        .left_out_of_check("offload");
    t.field("cpu_offloading_num_layers", &Config::cpu_offloading_num_layers,
            "offload the first layers of each pipeline stage, this many (implies "
            "--cpu-offloading); 0 with --cpu-offloading: all layers")
        .between(0, kMaxLayers);
    t.field("cpu_offloading_activations", &Config::cpu_offloading_activations,
            "let --cpu-offloading leave activations in memory");
    t.field("cpu_offloading_weights", &Config::cpu_offloading_weights,
            "offload the 16-bit weights of the layers that --cpu-offloading names as well; each "
            "layer's are read when it is used, one layer ahead");
    t.field("fine_grained_activation_offloading", &Config::fine_grained_activation_offloading,
            "offload the activations of the parts of layers that --offload-modules names")
        .left_out_of_check("offload");
    t.field("offload_modules", &Config::offload_modules,
            "parts of a layer; attn_norm, mlp_norm: input of a norm; qkv_linear, attn_proj: input "
            "of a projection; core_attn: queries, keys, values and output; mlp: a dense MLP; "
            "expert_fc1, moe_act: input of the experts and of their activation")
        .choices(node_names(kOffloaded))
        .none_is_empty();
    t.field("min_offloaded_tensor_size", &Config::min_offloaded_tensor_size,
            "offload only tensors of at least this many elements; whole layers also offload "
            "tensors of 16384 elements")
        .between(0, kMaxSize);
    t.field("activation_offload_fraction", &Config::activation_offload_fraction,
            "share of the layers of a pipeline stage that offload, with "
            "--fine-grained-activation-offloading")
        .between(0, 1);
  });
}

}  // namespace

const FieldTable<MemoryConfig>& memory_table() {
  return field_table<MemoryConfig>([](auto& t) {
    t.group("Memory budget");
    t.field("memory_budget", &MemoryConfig::memory_budget,
            "memory that each rank may use, such as 20GB, or auto for what is free: choose what "
            "layers recompute and offload (with --offload-folder) and, unless it is given, the "
            "micro-batch size, so that a step takes the least time")
        .value_name("BYTES|auto")
        .none_is_empty()
        .left_out_of_check("--memory-budget");
    t.field("activation_plan", &MemoryConfig::activation_plan,
            "what each layer recomputes or offloads, such as full*4,layernorm+mlp*20,none: none, "
            "full, layernorm, mlp, moe, shared_experts, mla_up_proj and offload, joined by +, *N "
            "for N layers; "
            "--memory-budget chooses it")
        .none_is_empty()
        .differs_silently();
    t.field("planned_world_size", &MemoryConfig::planned_world_size,
            "number of ranks that the activation plan was made for; set by --memory-budget")
        .hidden()
        .differs_silently();
    t.include(&MemoryConfig::recompute, recompute_table());
    t.include(&MemoryConfig::offload, offload_table());
  });
}

}  // namespace megatron
