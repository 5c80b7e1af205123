// Schedules with two chunks per rank in V order, where one rank holds the first and the last stage:
// ZB-V (Qi et al., Pipeline Parallelism with Controllable Memory, 2405.15362) and DualPipeV
// (DeepSeek's DualPipe cut in half).
#include "megatron/schedules/rank_steps.h"

namespace megatron {
namespace {

constexpr std::int64_t kDown = 0, kUp = 1;

void whole_backward(RankSteps& steps, std::int64_t chunk) {
  steps.backward_input(chunk);
  steps.backward_weight(chunk);
}

}  // namespace

void zb_v(const GeneratorArgs& args, RankSteps& steps) {
  const std::int64_t below = args.num_ranks - args.rank, above = args.rank,
                     count = args.num_microbatches;
  // Run until the first microbatch returns to this rank, after twice the number of ranks below.
  for (std::int64_t i = 0; i < 2 * below - 1; ++i) steps.forward(kDown);
  for (std::int64_t i = 0; i < above; ++i) {
    steps.forward(kUp);
    steps.forward(kDown);
  }
  for (std::int64_t i = 0; i < below; ++i) {
    steps.forward(kUp);
    whole_backward(steps, kUp);
  }
  // In the steady state there are six steps per microbatch, with 2·num_ranks activations held.
  const std::int64_t ahead_down = 2 * below - 1 + above, ahead_up = args.num_ranks;
  for (std::int64_t i = 0; i < count - ahead_up; ++i) {
    if (i + ahead_down < count) steps.forward(kDown);
    whole_backward(steps, kDown);
    steps.forward(kUp);
    whole_backward(steps, kUp);
  }
  // Input gradients come first; weight gradients fill the idle time.
  for (std::int64_t i = 0; i < above; ++i) {
    steps.backward_input(kDown);
    steps.backward_input(kUp);
  }
  for (std::int64_t i = 0; i < below; ++i) {
    steps.backward_input(kDown);
    steps.backward_weight(kDown);
  }
  for (std::int64_t i = 0; i < above; ++i) steps.backward_weight(kUp);
  for (std::int64_t i = 0; i < above; ++i) steps.backward_weight(kDown);
}

void dualpipe_v(const GeneratorArgs& args, RankSteps& steps) {
  const std::int64_t below = args.num_ranks - args.rank - 1, until = args.rank + 1;
  for (std::int64_t i = 0; i < 2 * below; ++i) steps.forward(kDown);
  for (std::int64_t i = 0; i < until; ++i) {
    steps.forward(kDown);
    steps.forward(kUp);
  }
  for (std::int64_t i = 0; i < below; ++i) {
    whole_backward(steps, kUp);
    steps.forward(kUp);
  }
  // Join every forward with a backward, except the last rank's first, which would delay all others.
  for (std::int64_t i = 0; i < args.num_microbatches - 2 * args.num_ranks + until; ++i) {
    if (i == 0 && below == 0) {
      steps.forward(kDown);
      steps.backward(kUp);
    } else {
      steps.forward_and_backward(kDown, kUp);
    }
    steps.forward_and_backward(kUp, kDown);
  }
  for (std::int64_t i = 0; i < below; ++i) {
    steps.backward(kUp);
    steps.forward_and_backward(kUp, kDown);
  }
  // Half of the last backwards defer their weight gradients to the idle time.
  std::vector<std::int64_t> put_off;
  for (std::int64_t i = 0; i < 2 * until; ++i) {
    const std::int64_t chunk = i % 2 == 0 ? kUp : kDown;
    if (i < until) {
      steps.backward(chunk);
    } else {
      steps.backward_input(chunk);
      put_off.push_back(chunk);
    }
  }
  put_off.insert(put_off.end(), below, kDown);
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(put_off.size()); ++i) {
    steps.backward_weight(put_off[i]);
    if (i < below) steps.backward_input(kDown);
  }
}

void forward_in_v(const GeneratorArgs& args, RankSteps& steps) {
  // With one microbatch every two forwards, microbatch i reaches this rank at 2i + rank on its way
  // down and at 2i + 2·num_ranks − 1 − rank on its way up, so never two at once.
  const std::int64_t ahead = args.num_ranks - args.rank;
  for (std::int64_t i = 0; i < args.num_microbatches + ahead - 1; ++i) {
    if (i < args.num_microbatches) steps.forward(kDown);
    if (i + 1 >= ahead && i + 1 - ahead < args.num_microbatches) steps.forward(kUp);
  }
}

}  // namespace megatron
