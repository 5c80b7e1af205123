#include "megatron/training/saving/upcycling.h"

#include <ostream>

#include "megatron/base/error.h"
#include "megatron/checkpoint/collective_steps.h"
#include "megatron/checkpoint/upcycle.h"

namespace megatron {

CheckpointSource upcycle(const CheckpointSource& source, const Settings& settings, const Rank& rank,
                         std::ostream& out) {
  const std::string& save = settings.checkpoint.save;
  const CollectiveSteps together(rank.world, rank.device);
  const std::string folder = together.run_on_rank_0([&] {
    if (find_checkpoint(save)) {
      throw UserError({"--moe-use-upcycling: --save " + save + " holds a checkpoint already", "",
                       "leave --moe-use-upcycling out and give --load " + save +
                           " to continue it, or give another folder"});
    }
    out << "making " << settings.model.moe.num_experts
        << " experts a layer from the dense model in " << source.folder.string() << " ..."
        << std::endl;
    const auto written = write_upcycled(source,
                                        {.experts = settings.model.moe,
                                         .granularity = settings.model.moe.upcycling_granularity,
                                         .init_method_std = settings.model.init_method_std,
                                         .seed = rank.seed},
                                        save);
    out << "Upcycled checkpoint saved to " << save << std::endl;
    return written.string();
  });
  CheckpointSource result;
  together.run_on_all_ranks([&] {
    result = open_checkpoint(folder, CheckpointSource::Kind::megatron);
    return std::string();
  });
  return result;
}

}  // namespace megatron
