// `megatron check` raises no false alarm: right layouts of every family agree with one rank.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "layouts/chosen_layouts.h"
#include "layouts/layout.h"
#include "layouts/layout_run.h"
#include "megatron/training/layout_check/layout_check.h"

namespace megatron::layouts {
namespace {

TEST(CheckLayouts, RightLayoutsRaiseNoAlarm) {
  constexpr std::int64_t kMostRanks = 8;
  constexpr std::size_t kFew = 10, kMany = 400;
  std::vector<Case> cases = all_cases();
  std::erase_if(cases, [](const Case& one) { return one.layout.world_size() > kMostRanks; });
  const unsigned seed = layout_seed();
  std::mt19937 random(seed);
  std::ranges::shuffle(cases, random);
  cases.resize(std::min(cases.size(), wants_all() ? kMany : kFew));
  for (const Case& one : cases) {
    const std::int64_t ranks = one.layout.world_size();
    const std::string what = layouts::families()[one.family].name + ' ' + one.layout.text() +
                             ", seed " + std::to_string(seed) + '\n';
    const ScaledRun run =
        scale_run(read_run(flags_of(one, {"--train-iters", "1"}), ranks), ranks, kMostRanks);
    try {
      const LayoutCheckResult result = check_layout(run);
      EXPECT_TRUE(result.agrees()) << what << check_report(run, result);
      EXPECT_GT(result.num_compared, 40 * ranks) << what;
    } catch (const std::exception& error) {
      ADD_FAILURE() << what << error.what();
    }
  }
}

}  // namespace
}  // namespace megatron::layouts
