#include "megatron/planner/run_costs.h"

#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/tokenizer_config.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"

namespace megatron {

std::int64_t padded_vocab_size(const Settings& settings) {
  const std::int64_t multiple = settings.tokenizer->make_vocab_size_divisible_by *
                                settings.parallel->tensor_model_parallel_size;
  return (settings.model->vocab_size + multiple - 1) / multiple * multiple;
}

MemoryLayout run_memory_layout(const Settings& settings, const Rank& rank,
                               std::int64_t num_microbatches) {
  return {.tensor_parallel = rank.tp.size,
          .pipeline_parallel = rank.pp.size,
          .data_parallel = rank.dp_cp.size,
          .expert_parallel = rank.ep.size,
          .expert_tensor_parallel = rank.etp.size,
          .expert_data_parallel = rank.edp.size,
          .use_distributed_optimizer = settings.parallel->use_distributed_optimizer,
          .micro_batch_size = settings.training->micro_batch_size,
          .sequence_length = settings.parallel->hybrid_context_parallel
                                 ? settings.parallel->max_seqlen_per_dp_cp_rank
                                 : settings.training->seq_length,
          .num_microbatches = num_microbatches};
}

}  // namespace megatron
