#include "megatron/training/observability/startup_report.h"

#include "megatron/base/format.h"
#include "megatron/parallel/rank.h"

namespace megatron {

std::string world_line(const Rank& rank) {
  using Integer = long long;
  const std::string levels =
      rank.cp_a2a.size > 1
          ? format("[%lld, %lld]", Integer{rank.cp_a2a.size}, Integer{rank.cp_p2p.size})
          : "None";
  return format(
      "using world size: %lld, data-parallel size: %lld, context-parallel size: %lld, hierarchical "
      "context-parallel sizes: %s, "
      "tensor-model-parallel size: %lld, pipeline-model-parallel size: %lld",
      Integer{rank.world.size}, Integer{rank.dp.size}, Integer{rank.cp.size}, levels.c_str(),
      Integer{rank.tp.size}, Integer{rank.pp.size});
}

std::string padded_vocab_line(std::int64_t vocab_size, std::int64_t padded_size) {
  using Integer = long long;
  return format(" > padded vocab (size: %lld) with %lld dummy tokens (new size: %lld)",
                Integer{vocab_size}, Integer{padded_size - vocab_size}, Integer{padded_size});
}

std::string dataset_sizes_block(const std::array<std::optional<std::int64_t>, 3>& samples) {
  const auto text = [&](std::size_t split) {
    return samples[split] ? std::to_string(*samples[split]) : "None";
  };
  return "> building train, validation, and test datasets ...\n > datasets target sizes (minimum "
         "size):\n    train:      " +
         text(0) + "\n    validation: " + text(1) + "\n    test:       " + text(2);
}

std::string phase_line(const DataPhase& phase) {
  using Integer = long long;
  return format(
      "> phase %lld of %lld of the data: iterations %lld to %lld, %lld samples from the first of "
      "their data set on",
      Integer{phase.index + 1}, Integer{phase.count}, Integer{phase.begin + 1}, Integer{phase.end},
      Integer{phase.num_samples});
}

std::string parameter_count_line(std::int64_t parameters) {
  return " > number of parameters on (tensor, pipeline) model parallel rank (0, 0): " +
         std::to_string(parameters);
}

}  // namespace megatron
