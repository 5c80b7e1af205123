// Rules on the optimizer and on the offload of its state.
#include "megatron/config/memory_config.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/rule.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using namespace rules;

bool divides_shared_embedding(S s) {
  return s.parallel->use_distributed_optimizer && s.parallel->pipeline_model_parallel_size > 1 &&
         !s.model->untie_embeddings_and_output_weights;
}

}  // namespace

const Rules& optimizer_settings_rules() {
  static const Condition adafactor = is(&Optimizer::optimizer, "adafactor");
  static const Rules rules = {
      tunes({&Offload::optimizer_offload_fraction, &Offload::overlap_cpu_optimizer_d2h_h2d},
            &Offload::optimizer_cpu_offload),
      tunes({&Optimizer::adafactor_beta1, &Optimizer::adafactor_decay_rate,
             &Optimizer::adafactor_clip_threshold, &Optimizer::adafactor_eps1,
             &Optimizer::adafactor_eps2, &Optimizer::adafactor_scale_parameter},
            adafactor),
      excludes(&Offload::optimizer_cpu_offload, adafactor,
               {.why = ", which needs whole matrices and keeps two vectors of state for each",
                .fix = {"leave ", &Offload::optimizer_cpu_offload, " out, or use ",
                        &Optimizer::optimizer, " adam"}}),
      refuse({adafactor, divides_shared_embedding},
             {"needs whole matrices, but ", &Parallel::use_distributed_optimizer,
              " divides an embedding that pipeline stages share"},
             {"add ", &Model::untie_embeddings_and_output_weights, ", or leave ",
              &Parallel::use_distributed_optimizer, " out"}),
  };
  return rules;
}

}  // namespace megatron
