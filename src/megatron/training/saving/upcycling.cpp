#include "megatron/training/saving/upcycling.h"

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/config/checkpoint_config.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"

namespace megatron {

std::optional<UpcycleRequest> upcycle_request(const Settings& settings, const Rank& rank,
                                              const ModelFamilies& families,
                                              StartupWarnings& warnings, std::ostream& out) {
  const MoeConfig& moe = settings.model->moe;
  const std::string& save = settings.checkpoint->save;
  if (!moe.use_upcycling) return std::nullopt;
  CollectiveSteps(rank.world, rank.device).run_on_rank_0([&] {
    if (std::filesystem::exists(save) && find_checkpoint_folder(save, std::nullopt)) {
      throw UserError({"--save " + save,
                       "holds a checkpoint already, and --moe-use-upcycling is given",
                       "leave --moe-use-upcycling out and give --load " + save +
                           " to continue that run, or give another folder"});
    }
    return std::string();
  });
  if (moe.router_topk < moe.upcycling_granularity)
    warnings.add("--moe-router-topk " + std::to_string(moe.router_topk) +
                     " is less than --moe-upcycling-granularity " +
                     std::to_string(moe.upcycling_granularity) +
                     ": a token takes only some parts of the dense MLP, so the model starts worse "
                     "than the dense one",
                 out);
  return UpcycleRequest{.experts = moe,
                        .granularity = moe.upcycling_granularity,
                        .init_method_std = settings.model->init_method_std,
                        .seed = rank.seed,
                        .world = rank.world,
                        .device = rank.device,
                        .families = &families};
}

CheckpointSource upcycle(const CheckpointSource& source, const UpcycleRequest& request,
                         const std::string& save) {
  const std::filesystem::path folder = write_upcycled(source, request, save);
  return open_checkpoint(folder, CheckpointSource::Kind::megatron);
}

}  // namespace megatron
