// Rank threads that share data, sequences, tensors and stages.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "megatron/config/parallel_config.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/mesh.h"
#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"
#include "megatron/params/data_parallel.h"

namespace megatron {

struct DataLayout {
  std::int64_t dp = 1, tp = 1;
  bool distributed_optimizer = false;
  bool overlap = false;
  std::int64_t instances = 1;
  std::int64_t bucket_elements = 0;  ///< 0: one bucket.
  bool whole_parameters = false;     ///< DataParallelOptions::keeps_parameters_whole
  std::int64_t pp = 1;
  std::string schedule = {},
              stages = {};       ///< --pipeline-schedule, --pipeline-model-parallel-layout
  std::int64_t ep = 1, etp = 0;  ///< of experts; etp 0: as tp
  std::int64_t cp = 1;
  std::optional<std::int64_t> zero_stage = {};  ///< takes precedence over distributed_optimizer

  std::int64_t world_size() const { return dp * tp * cp * pp; }
  std::string name() const {
    return "dp" + std::to_string(dp) + (tp > 1 ? "_tp" + std::to_string(tp) : "") +
           (distributed_optimizer ? "_zero" : "") +
           (instances > 1 ? "_instances" + std::to_string(instances) : "") +
           (overlap ? "_overlap" : "") + (bucket_elements > 0 ? "_buckets" : "") +
           (whole_parameters ? "_whole" : "") +
           (pp > 1 ? "_pp" + std::to_string(pp) + schedule + stages : "") +
           (ep > 1 ? "_ep" + std::to_string(ep) : "") +
           (etp > 0 ? "_etp" + std::to_string(etp) : "") +
           (cp > 1 ? "_cp" + std::to_string(cp) : "") +
           (zero_stage ? "_stage" + std::to_string(*zero_stage) : "");
  }
  ParallelConfig config() const {
    ParallelConfig config;
    config.use_distributed_optimizer = distributed_optimizer;
    config.zero_stage = zero_stage;
    config.num_distributed_optimizer_instances = instances;
    config.overlap_grad_reduce = overlap;
    config.overlap_param_gather = overlap && distributed_optimizer;
    config.pipeline_model_parallel_size = pp;
    config.pipeline_schedule = schedule;
    config.pipeline_model_parallel_layout = stages;
    return config;
  }
  Mesh mesh() const {
    return {{.tp = tp,
             .cp = cp,
             .ep = ep,
             .etp = etp > 0 ? std::optional(etp) : std::nullopt,
             .pp = pp},
            world_size()};
  }
};

/// Returns how a rank of the layout shares its weights.
inline DataParallelOptions data_parallel_of(const DataLayout& layout, const Rank& rank,
                                            Communicators& communicators) {
  DataParallelOptions options = data_parallel(layout.config(), rank, &communicators);
  options.bucket_elements = layout.bucket_elements;
  options.keeps_parameters_whole = layout.whole_parameters;
  return options;
}

/// Runs `body` on every rank of the layout.
inline void on_data_ranks(const DataLayout& layout,
                          const std::function<void(const Rank&, Communicators&)>& body) {
  const Mesh mesh = layout.mesh();
  const auto run = [&](Communicators& communicators) {
    body(make_rank(mesh, communicators), communicators);
  };
  run_rank_threads(layout.world_size(), run, {.timeout = std::chrono::seconds(20)});
}

}  // namespace megatron
