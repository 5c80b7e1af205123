// Where copies of local checkpoints go, which mistakes are refused, and which local checkpoints
// belong to a run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "megatron/config/checkpoint_config.h"
#include "megatron/training/saving/save_folders.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

struct Flags {
  std::optional<std::int64_t> jump = {};
  std::int64_t factor = 2;
};

CheckpointConfig config_of(const Flags& flags) {
  CheckpointConfig config;
  config.non_persistent_local_ckpt_dir = "/dev/shm/run";
  config.replication = true;
  config.replication_jump = flags.jump;
  config.replication_factor = flags.factor;
  return config;
}

LocalPlacement place(const std::vector<std::int64_t>& leaders, const Flags& flags = {},
                     std::int64_t restarts = 0) {
  StartupWarnings warnings;
  std::ostringstream out;
  return place_local_checkpoints(config_of(flags), {leaders}, {.count = restarts, .max = 9},
                                 warnings, out);
}

std::string error_of(const std::vector<std::int64_t>& leaders, const Flags& flags = {}) {
  return message_of([&] { place(leaders, flags); });
}

TEST(LocalPlacement, TheJumpIsByDefaultTheNumberOfRanksOfAHost) {
  const LocalPlacement placement = place({0, 0, 2, 2, 4, 4, 6, 6});
  EXPECT_TRUE(placement.has_copies);
  EXPECT_EQ(placement.copies.jump, 2);
  EXPECT_THAT(ranks_with_copies(1, placement), ElementsAre(3));
  EXPECT_EQ(place({0, 0, 2, 2}, {.jump = 2}).copies.jump, 2);
}

TEST(LocalPlacement, CopiesWithoutAPlaceAreRefused) {
  EXPECT_THAT(error_of({0, 0}), HasSubstr("all ranks share one folder /dev/shm/run, so a copy "
                                          "would be lost with its original"));
  EXPECT_THAT(error_of({0, 0, 2, 3}), HasSubstr("hosts have different numbers of ranks"));
  EXPECT_THAT(error_of({0, 0, 2, 2, 4, 4}),
              HasSubstr("--replication-jump 2 --replication-factor 2: the number of ranks, 6, is "
                        "no multiple of their product"));
  EXPECT_THAT(error_of({0, 0, 2, 2}, {.jump = 1}),
              HasSubstr("ranks of one host are in one group: of rank 0 there would be 1 copies"));
}

TEST(LocalPlacement, ARestartWithFewerHostsGoesOnWithoutCopies) {
  StartupWarnings warnings;
  std::ostringstream out;
  const LocalPlacement placement = place_local_checkpoints(config_of({.jump = 2}), {{0, 0}},
                                                           {.count = 1, .max = 9}, warnings, out);
  EXPECT_FALSE(placement.has_copies);
  ASSERT_THAT(warnings.texts(), SizeIs(1));
  EXPECT_THAT(warnings.texts().front(), HasSubstr("local checkpoints have no copies after this "
                                                  "restart, because --replication: all ranks"));
}

TEST(LocalPlacement, ARunKnowsItsCheckpointsByTheSaveFolder) {
  const TemporaryFolder folder;
  const auto is_own = [&](const std::string& saved, const std::string& save,
                          const std::string& load) {
    Manifest manifest;
    manifest.settings = Json{{"save", saved}};
    CheckpointConfig config;
    config.save = save;
    config.load = load;
    return is_of_run(manifest, config);
  };
  const std::string a = (folder / "a").string(), b = (folder / "b").string();
  EXPECT_TRUE(is_own(a, a, a));
  EXPECT_TRUE(is_own(a, b, a)) << "continued in another folder";
  EXPECT_TRUE(is_own(a + "/../a", a, b));
  EXPECT_FALSE(is_own(a, b, b));
  EXPECT_FALSE(is_of_run(Manifest(), CheckpointConfig()));
}

}  // namespace
}  // namespace megatron
