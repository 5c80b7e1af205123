// GPipe (1811.06965), 1F1B (PipeDream-flush, 2006.09503), interleaved 1F1B (2104.04473) and
// combined 1F1B. All start with some forwards, alternate forward and backward, and end with the
// remaining backwards.
#include <algorithm>

#include "megatron/schedules/rank_steps.h"

namespace megatron {
namespace {

/// Returns the chunk of every forward, in order. The chunk of the k-th backward mirrors it.
std::vector<std::int64_t> chunks_in_groups(const GeneratorArgs& args) {
  std::vector<std::int64_t> chunks;
  chunks.reserve(args.num_microbatches * args.num_chunks);
  for (std::int64_t begin = 0; begin < args.num_microbatches; begin += args.microbatch_group) {
    const std::int64_t size = std::min(args.microbatch_group, args.num_microbatches - begin);
    for (std::int64_t chunk = 0; chunk < args.num_chunks; ++chunk)
      chunks.insert(chunks.end(), size, chunk);
  }
  return chunks;
}

enum class Pairs { apart, joined };

void alternate(const GeneratorArgs& args, std::int64_t num_ahead, Pairs pairs, RankSteps& steps) {
  const std::vector<std::int64_t> chunks = chunks_in_groups(args);
  const auto count = static_cast<std::int64_t>(chunks.size());
  num_ahead = std::min(num_ahead, count);
  for (std::int64_t i = 0; i < num_ahead; ++i) steps.forward(chunks[i]);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t backward_chunk = args.num_chunks - 1 - chunks[i];
    if (i + num_ahead >= count) {
      steps.backward(backward_chunk);
    } else if (pairs == Pairs::joined) {
      steps.forward_and_backward(chunks[i + num_ahead], backward_chunk);
    } else {
      steps.forward(chunks[i + num_ahead]);
      steps.backward(backward_chunk);
    }
  }
}

/// Returns the number of warm-up forwards, as in Megatron. The last rank's first backward follows a
/// whole group in all chunks but the last; each rank before it runs two more forwards first.
std::int64_t interleaved_ahead(const GeneratorArgs& args) {
  return 2 * (args.num_ranks - args.rank - 1) + (args.num_chunks - 1) * args.microbatch_group;
}

}  // namespace

void gpipe(const GeneratorArgs& args, RankSteps& steps) {
  alternate(args, args.num_microbatches, Pairs::apart, steps);
}

void one_f_one_b(const GeneratorArgs& args, RankSteps& steps) {
  alternate(args, args.num_ranks - args.rank - 1, Pairs::apart, steps);
}

void interleaved(const GeneratorArgs& args, RankSteps& steps) {
  alternate(args, interleaved_ahead(args), Pairs::apart, steps);
}

void combined_1f1b(const GeneratorArgs& args, RankSteps& steps) {
  alternate(args, interleaved_ahead(args) + 1, Pairs::joined, steps);
}

void forward_in_groups(const GeneratorArgs& args, RankSteps& steps) {
  for (const std::int64_t chunk : chunks_in_groups(args)) steps.forward(chunk);
}

}  // namespace megatron
