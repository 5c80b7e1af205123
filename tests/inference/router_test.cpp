#include "megatron/inference/router.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

using Ids = std::vector<std::int64_t>;

Ids prompt(std::int64_t first, std::int64_t count) {
  Ids ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(first + i);
  return ids;
}

TEST(RequestRouter, ChoosesTheReplicaWithTheLeastLoad) {
  RequestRouter router({.num_replicas = 3, .block_size = 4});
  const RequestRouter::Route long_one = router.choose(prompt(0, 100), 50);
  EXPECT_EQ(long_one.replica, 0u);
  EXPECT_EQ(long_one.load, 150);
  EXPECT_EQ(router.choose(prompt(200, 10), 10).replica, 1u);
  EXPECT_EQ(router.choose(prompt(300, 10), 20).replica, 2u);
  EXPECT_EQ(router.choose(prompt(400, 10), 40).replica, 1u);
  EXPECT_EQ(router.choose(prompt(500, 1), 1).replica, 2u);
  router.release(long_one);
  EXPECT_EQ(router.choose(prompt(600, 1), 1).replica, 0u);
  EXPECT_EQ(router.choose(prompt(700, 3), 300, /*num_texts=*/4).load, 3 + 4 * 256);
}

TEST(RequestRouter, ChoosesTheReplicaThatHasThePrefix) {
  RequestRouter router({.num_replicas = 2, .block_size = 4});
  router.release(router.choose(prompt(0, 3), 1));
  const RequestRouter::Route busy = router.choose(prompt(700, 2), 1);
  const RequestRouter::Route first = router.choose(prompt(0, 40), 8);
  EXPECT_EQ(first.replica, 1u);
  router.release(first);
  router.release(busy);
  // Ten blocks are there, and then five.
  const RequestRouter::Route again = router.choose(prompt(0, 42), 8);
  EXPECT_EQ(again.replica, 1u);
  EXPECT_EQ(again.load, 2 + 8);
  Ids branch = prompt(0, 20);
  branch.push_back(-1);
  const RequestRouter::Route half = router.choose(branch, 0);
  EXPECT_EQ(half.replica, 1u);
  EXPECT_EQ(half.load, 1);
  // The same tokens elsewhere are another prefix.
  EXPECT_EQ(router.choose(prompt(4, 36), 0).replica, 0u);
}

TEST(RequestRouter, ALoadedReplicaGivesWay) {
  RequestRouter router({.num_replicas = 2, .block_size = 4});
  EXPECT_EQ(router.choose(prompt(0, 40), 100).replica, 0u);
  EXPECT_EQ(router.choose(prompt(0, 40), 100).replica, 1u);  // 140 there, 240 here
  EXPECT_EQ(router.choose(prompt(0, 40), 100).replica, 0u);
}

TEST(RequestRouter, ForgetsThePrefixesUsedLeastRecently) {
  RequestRouter router({.num_replicas = 1, .block_size = 4, .num_blocks = 20});
  router.choose(prompt(0, 40), 0);
  EXPECT_EQ(router.choose(prompt(0, 40), 0).load, 0);
  for (std::int64_t i = 1; i < 5; ++i) router.choose(prompt(100 * i, 40), 0);
  EXPECT_EQ(router.choose(prompt(0, 40), 0).load, 40);
  RequestRouter none({.num_replicas = 1, .block_size = 4, .num_blocks = 0});
  none.choose(prompt(0, 40), 0);
  EXPECT_EQ(none.choose(prompt(0, 40), 0).load, 40);
}

}  // namespace
}  // namespace megatron
