// Rules on the optimizer and on the offload of its state.
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using S = const Settings&;

const OffloadConfig& offload(S s) { return s.memory->offload; }

UserError::Parts needs_offload(const std::string& flag) {
  return needs_flag(flag, "--optimizer-cpu-offload");
}

bool is_adafactor(S s) { return s.optimizer->optimizer == "adafactor"; }

bool has_adafactor_settings(S s) {
  const OptimizerConfig standard;
  const OptimizerConfig& config = *s.optimizer;
  return config.adafactor_beta1 || config.adafactor_scale_parameter ||
         config.adafactor_decay_rate != standard.adafactor_decay_rate ||
         config.adafactor_clip_threshold != standard.adafactor_clip_threshold ||
         config.adafactor_eps1 != standard.adafactor_eps1 ||
         config.adafactor_eps2 != standard.adafactor_eps2;
}

}  // namespace

const std::vector<Rule>& optimizer_settings_rules() {
  static const std::vector<Rule> rules = {
      {{"optimizer_cpu_offload", "optimizer_offload_fraction"},
       [](S s) {
         return offload(s).optimizer_offload_fraction != 1 && !offload(s).optimizer_cpu_offload;
       },
       [](S) { return needs_offload("--optimizer-offload-fraction"); }},
      {{"optimizer_cpu_offload", "overlap_cpu_optimizer_d2h_h2d"},
       [](S s) {
         return offload(s).overlap_cpu_optimizer_d2h_h2d && !offload(s).optimizer_cpu_offload;
       },
       [](S) { return needs_offload("--overlap-cpu-optimizer-d2h-h2d"); }},
      {{"optimizer", "adafactor_beta1", "adafactor_decay_rate", "adafactor_clip_threshold",
        "adafactor_eps1", "adafactor_eps2", "adafactor_scale_parameter"},
       [](S s) { return !is_adafactor(s) && has_adafactor_settings(s); },
       [](S s) {
         return UserError::Parts{"the --adafactor-… flags",
                                 "have no effect with --optimizer " + s.optimizer->optimizer,
                                 "add --optimizer adafactor, or leave them out"};
       }},
      {{"optimizer", "optimizer_cpu_offload"},
       [](S s) { return is_adafactor(s) && offload(s).optimizer_cpu_offload; },
       [](S) {
         return UserError::Parts{"--optimizer-cpu-offload",
                                 "excludes --optimizer adafactor, which needs whole matrices and "
                                 "keeps two vectors of state for each",
                                 "leave --optimizer-cpu-offload out, or use --optimizer adam"};
       }},
      {{"optimizer", "moe_expert_placement_interval", "num_experts"},
       [](S s) {
         return is_adafactor(s) && s.model->moe.num_experts > 0 &&
                s.model->moe.expert_placement_interval > 0;
       },
       [](S) {
         return UserError::Parts{
             "--moe-expert-placement-interval",
             "excludes --optimizer adafactor, whose state has other shapes than "
             "the experts that move",
             "use --optimizer adam"};
       }},
      {{"optimizer", "use_distributed_optimizer", "pipeline_model_parallel_size",
        "untie_embeddings_and_output_weights"},
       [](S s) {
         return is_adafactor(s) && s.parallel->use_distributed_optimizer &&
                s.parallel->pipeline_model_parallel_size > 1 &&
                !s.model->untie_embeddings_and_output_weights;
       },
       [](S) {
         return UserError::Parts{"--optimizer adafactor",
                                 "needs whole matrices, but --use-distributed-optimizer divides an "
                                 "embedding that pipeline stages share",
                                 "add --untie-embeddings-and-output-weights, or leave "
                                 "--use-distributed-optimizer out"};
       }},
  };
  return rules;
}

}  // namespace megatron
