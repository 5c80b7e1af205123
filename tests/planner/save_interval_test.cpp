#include "megatron/planner/save_interval.h"

#include <gtest/gtest.h>

#include <cmath>

namespace megatron {
namespace {

TEST(BestSaveInterval, LosesLeast) {
  for (const double save : {1.0, 30.0, 600.0}) {
    const double failure = 3 * 3600, best = best_save_interval(save, failure);
    EXPECT_LT(lost_share(best, save, failure), lost_share(0.7 * best, save, failure));
    EXPECT_LT(lost_share(best, save, failure), lost_share(1.4 * best, save, failure));
  }
  EXPECT_NEAR(best_save_interval(1e-6, 1e6) / std::sqrt(2.0), 1, 1e-3) << "Young's for short saves";
  EXPECT_EQ(best_save_interval(20, 10), 10) << "no save ends between failures";
}

}  // namespace
}  // namespace megatron
