#include "megatron/config/context_sizes.h"

#include <algorithm>

#include "megatron/config/cp_comm_type.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"

namespace megatron {

std::vector<std::int64_t> context_sizes(std::int64_t seq_length, std::int64_t limit) {
  std::vector<std::int64_t> sizes{1};
  for (std::int64_t size = 2; size <= std::min(limit, seq_length / 2); ++size)
    if (seq_length % (2 * size) == 0) sizes.push_back(size);
  return sizes;
}

std::int64_t tokens_per_rank(const Settings& settings, std::int64_t ranks) {
  const TrainingConfig& training = *settings.training;
  return settings.parallel->hybrid_context_parallel
             ? settings.parallel->max_seqlen_per_dp_cp_rank
             : training.micro_batch_size * training.seq_length / ranks;
}

std::int64_t cp_a2a_size(const ParallelConfig& parallel) {
  const bool is_used =
      parallel.context_parallel_size > 1 &&
      std::ranges::find(parallel.cp_comm_type, CpCommType::a2a_p2p) != parallel.cp_comm_type.end();
  return is_used ? parallel.hierarchical_context_parallel_sizes.front() : 1;
}

}  // namespace megatron
