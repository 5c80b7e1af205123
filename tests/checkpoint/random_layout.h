// Layouts drawn at random, for tests of pairs of layouts.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "support/data_parallel_ranks.h"

namespace megatron {

template <class Choice>
Choice pick(std::mt19937& random, const std::vector<Choice>& choices) {
  return choices[random() % choices.size()];
}

/// Returns a layout of 8 ranks for the models of rank_run.h with tp, pp, cp, dp and a ZeRO stage
/// drawn at random; with experts also ep and etp.
inline DataLayout random_layout(std::mt19937& random, bool has_experts) {
  constexpr std::int64_t kRanks = 8;
  const auto one_of = [&](const std::vector<std::int64_t>& choices) {
    return pick(random, choices);
  };
  DataLayout layout{.tp = one_of({1, 2, 4})};
  layout.pp = layout.tp == 4 ? one_of({1, 2}) : one_of({1, 2, 4});
  if (layout.tp * layout.pp < kRanks) layout.cp = one_of({1, 2});
  layout.dp = kRanks / (layout.tp * layout.pp * layout.cp);
  layout.zero_stage = one_of({0, 1, 2, 3});
  if (!has_experts) return layout;
  layout.etp = one_of({1, layout.tp});
  const std::int64_t for_experts = kRanks / layout.pp / layout.etp;
  layout.ep = one_of({1, 2, 4});
  while (for_experts % layout.ep != 0) layout.ep /= 2;
  return layout;
}

}  // namespace megatron
