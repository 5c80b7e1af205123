// What ZeRO sends over data-parallel ranks is what theory says (Rajbhandari et al. 2020, section
// 7): for Ψ bytes of weights, stages 1 and 2 move 2 Ψ a step (reduce-scatter of gradients,
// all-gather of weights) and stage 3 moves 3 Ψ a microbatch, because backward gathers weights
// again.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "layouts/layout_run.h"
#include "megatron/parallel/rank_threads.h"

namespace megatron {
namespace {

using layouts::Flags;

/// Bytes of whole tensors; a rank sends and receives (n − 1) / n of them.
struct Volume {
  double gathered = 0, reduced = 0;  ///< by all-gathers and by reduce-scatters over dp
  double weights = 0;                ///< Ψ, with the padding of buckets
  double largest_units = 0;          ///< of the two largest units together
  std::vector<std::int64_t> gathers_of_unit = {};
  std::int64_t unread = 0;
};

/// Returns what rank 0 counts in the third step, when units are gathered ahead as in the second.
Volume third_step(const Flags& more, std::int64_t ranks) {
  Flags flags = layouts::common_flags();
  flags.insert(flags.end(), {"--train-iters", "3"});
  flags.insert(flags.end(), more.begin(), more.end());
  const RunConfig run = read_run(flags, ranks);
  Volume volume;
  run_rank_threads(ranks, [&](Communicators& communicators) {
    std::ostream silent(nullptr);
    Trainer trainer =
        set_up(run, silent, {.communicators = &communicators, .cpus = {.count = 1 << 20}});
    ParamStore& store = *trainer.state.weights;
    layouts::make_step(trainer);
    layouts::make_step(trainer);
    communicators.counters().take();
    UnitValues::Counters before;
    if (store.unit_values() != nullptr) before = store.unit_values()->counters();
    layouts::make_step(trainer);
    if (communicators.rank() != 0) return;
    for (const CommCount& row : communicators.counters().take()) {
      if (row.operation == "all_gather" && row.what.find("weights") != std::string::npos)
        volume.gathered += static_cast<double>(row.bytes);
      if (row.operation == "reduce_scatter") volume.reduced += static_cast<double>(row.bytes);
    }
    std::map<std::size_t, double> units;
    for (const ParamBucket& bucket : store.buckets()) {
      volume.weights += static_cast<double>(bucket.value_bytes());
      units[bucket.unit] += static_cast<double>(bucket.value_bytes());
    }
    std::vector<double> sizes;
    for (const auto& [unit, bytes] : units) sizes.push_back(bytes);
    std::ranges::sort(sizes, std::greater());
    volume.largest_units = sizes[0] + sizes[1];
    if (store.unit_values() == nullptr) return;
    const UnitValues::Counters& after = store.unit_values()->counters();
    volume.unread = after.unread - before.unread;
    for (std::size_t unit = 0; unit < after.gathers.size(); ++unit)
      volume.gathers_of_unit.push_back(after.gathers[unit] - before.gathers[unit]);
  });
  return volume;
}

Flags batch_of(std::int64_t microbatches, std::int64_t ranks, Flags flags) {
  const Flags batch{"--micro-batch-size", "1", "--global-batch-size",
                    std::to_string(microbatches * ranks)};
  flags.insert(flags.end(), batch.begin(), batch.end());
  return flags;
}

TEST(ShardedCommunication, OfStagesOneAndTwoIsTwiceTheWeights) {
  for (const char* stage : {"1", "2"}) {
    const Volume volume = third_step(batch_of(1, 2, {"--zero-stage", stage}), 2);
    EXPECT_EQ(volume.reduced, volume.weights) << stage;
    EXPECT_EQ(volume.gathered, volume.weights) << stage;
  }
}

TEST(ShardedCommunication, OfStageThreeIsThreeTimesTheWeightsForEachMicrobatch) {
  for (const std::int64_t ranks : {2, 4}) {
    for (const std::int64_t microbatches : {1, 2}) {
      for (const Flags& overlap :
           {Flags{}, Flags{"--overlap-grad-reduce", "--overlap-param-gather"}}) {
        Flags flags = batch_of(microbatches, ranks, {"--use-megatron-fsdp"});
        flags.insert(flags.end(), overlap.begin(), overlap.end());
        SCOPED_TRACE(testing::PrintToString(flags));
        const Volume volume = third_step(flags, ranks);
        const auto times = static_cast<double>(microbatches);
        EXPECT_EQ(volume.reduced, times * volume.weights);
        // Where forward turns to backward, and at the next microbatch, two units are still there.
        EXPECT_LE(volume.gathered, 2 * times * volume.weights);
        EXPECT_GE(volume.gathered, 2 * times * (volume.weights - volume.largest_units));
        for (const std::int64_t gathers : volume.gathers_of_unit) {
          EXPECT_GE(gathers, 1);
          EXPECT_LE(gathers, 2 * microbatches) << "once in forward and once in backward";
        }
        EXPECT_EQ(volume.unread, 0);
      }
    }
  }
}

}  // namespace
}  // namespace megatron
