#include "megatron/training/loop/optimizer_offload.h"

#include "megatron/config/memory_config.h"
#include "megatron/config/settings.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/run/open_offload_store.h"
#include "megatron/training/run/training_plan.h"

namespace megatron {

StateOffloadOptions optimizer_offload(const TrainingPlan& plan, StartupWarnings& warnings,
                                      std::ostream& out) {
  const OffloadConfig& config = plan.settings.memory->offload;
  if (!config.optimizer_cpu_offload) return {};
  return {.store = open_offload_store({.config = config,
                                       .flag = "--optimizer-cpu-offload",
                                       .max_bytes_in_flight = kOptimizerBytesInFlight},
                                      plan.rank.device, warnings, out),
          .fraction = config.optimizer_offload_fraction,
          .overlaps_copies = config.overlap_cpu_optimizer_d2h_h2d};
}

}  // namespace megatron
