// Rules on the optimizer and on the offload of its state.
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using namespace rules;

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

const Rules& optimizer_settings_rules() {
  static const Rules rules = {
      tunes({&Offload::optimizer_offload_fraction, &Offload::overlap_cpu_optimizer_d2h_h2d},
            &Offload::optimizer_cpu_offload),
      rule([](S s) { return !is_adafactor(s) && has_adafactor_settings(s); },
           {"the --adafactor-… flags",
            {"have no effect with ", with_value(&Optimizer::optimizer)},
            {"add ", &Optimizer::optimizer, " adafactor, or leave them out"},
            {&Optimizer::adafactor_beta1, &Optimizer::adafactor_decay_rate,
             &Optimizer::adafactor_clip_threshold, &Optimizer::adafactor_eps1,
             &Optimizer::adafactor_eps2, &Optimizer::adafactor_scale_parameter}}),
      excludes(&Offload::optimizer_cpu_offload, is(&Optimizer::optimizer, "adafactor"),
               {.why = ", which needs whole matrices and keeps two vectors of state for each",
                .fix = {"leave ", &Offload::optimizer_cpu_offload, " out, or use ",
                        &Optimizer::optimizer, " adam"}}),
      when([](S s) { return s.model->moe.num_experts > 0; },
           excludes(&Moe::expert_placement_interval, is(&Optimizer::optimizer, "adafactor"),
                    {.why = ", whose state has other shapes than the experts that move",
                     .fix = {"use ", &Optimizer::optimizer, " adam"}})),
      rule(
          [](S s) {
            return is_adafactor(s) && s.parallel->use_distributed_optimizer &&
                   s.parallel->pipeline_model_parallel_size > 1 &&
                   !s.model->untie_embeddings_and_output_weights;
          },
          {{&Optimizer::optimizer, " adafactor"},
           {"needs whole matrices, but ", &Parallel::use_distributed_optimizer,
            " divides an embedding that pipeline stages share"},
           {"add ", &Model::untie_embeddings_and_output_weights, ", or leave ",
            &Parallel::use_distributed_optimizer, " out"},
           {&Parallel::pipeline_model_parallel_size}}),
  };
  return rules;
}

}  // namespace megatron
