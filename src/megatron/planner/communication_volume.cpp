#include "megatron/planner/communication_volume.h"

#include <map>

#include "megatron/config/parallel_config.h"
#include "megatron/config/pipeline_layout.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/activation_memory.h"

namespace megatron {

double share_between_hosts(const RankList& group, std::int64_t gpus_per_host, bool all_to_all) {
  std::map<std::int64_t, double> hosts;  // the number of ranks on each
  for (const std::int64_t rank : group) hosts[rank / gpus_per_host] += 1;
  if (hosts.size() < 2) return 0;
  const double ranks = static_cast<double>(group.size());
  if (!all_to_all) return static_cast<double>(hosts.size()) / ranks;
  double pairs = 0;  // on one host
  for (const auto& [host, count] : hosts) pairs += count * (count - 1);
  return 1 - pairs / (ranks * (ranks - 1));
}

CommunicationVolume activation_volume(const Settings& settings, const Rank& rank,
                                      const std::vector<std::int64_t>& layers,
                                      const ActivationPlan& plan, std::int64_t num_microbatches,
                                      LayerTraces& traces) {
  const double microbatches = static_cast<double>(num_microbatches);
  CommunicationVolume volume;
  ActivationPlan without_input = plan;  // of a layer whose group has the input of another
  without_input.distributes_saved_activations = false;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool continues = continues_group(plan, layers, i);
    const LayerTrace& trace =
        traces.of(settings, rank, layers[i], continues ? without_input : plan);
    volume.tensor += microbatches * trace.sent_over(rank.tp.name);
    volume.expert += microbatches * trace.sent_over(rank.etp_ep.name);
    for (const Axis* axis : {&rank.cp, &rank.cp_a2a, &rank.cp_p2p})
      volume.context += microbatches * trace.sent_over(axis->name);
  }
  if (settings.parallel->pipeline_model_parallel_size > 1)
    volume.pipeline =
        microbatches * 2 * hidden_bytes(*settings.model, activation_layout(settings, rank)) *
        static_cast<double>(num_pipeline_chunks(*settings.parallel, settings.model->num_layers));
  return volume;
}

}  // namespace megatron
