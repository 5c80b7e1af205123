// ZB-H1 and ZB-H2 (Qi et al., Zero Bubble Pipeline Parallelism, 2401.10241): 1F1B that defers
// weight gradients until a rank would be idle.
#include <algorithm>

#include "megatron/schedules/rank_steps.h"

namespace megatron {
namespace {

/// Runs `num_ahead` warm-up forwards. The weight gradient of a microbatch follows its backward
/// `delay` backwards later.
void split_backward(const GeneratorArgs& args, std::int64_t num_ahead, std::int64_t delay,
                    RankSteps& steps) {
  const std::int64_t count = args.num_microbatches;
  for (std::int64_t i = 0; i < std::min(num_ahead, count); ++i) steps.forward(0);
  for (std::int64_t i = 0; i < count; ++i) {
    steps.backward_input(0);
    if (i >= delay) steps.backward_weight(0);
    if (i + num_ahead < count) steps.forward(0);
  }
  for (std::int64_t i = 0; i < std::min(delay, count); ++i) steps.backward_weight(0);
}

}  // namespace

void zb_h1(const GeneratorArgs& args, RankSteps& steps) {
  split_backward(args, args.num_ranks - args.rank, args.rank, steps);
}

void zb_h2(const GeneratorArgs& args, RankSteps& steps) {
  const std::int64_t below = args.num_ranks - args.rank, above = args.rank;
  // Keeps up to twice the activations of ZB-H1, limited by the number of microbatches.
  const std::int64_t more =
      std::clamp<std::int64_t>(args.num_microbatches - args.num_ranks, 0, args.num_ranks - 1);
  split_backward(args, below + std::min(more, below - 1), above + std::min(more, above), steps);
}

}  // namespace megatron
