// Local checkpoints with copies on other hosts. Hosts are folders: each rank thread has the folder
// of its host, and a lost host is a removed folder.
#include "megatron/checkpoint/local/local_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <sstream>

#include "checkpoint/fault_injection_file_system.h"
#include "checkpoint/owners_of.h"
#include "checkpoint/rank_run.h"
#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/checkpoint/checkpoint_root.h"
#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/local/local_inventory.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/parallel/rank.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// The example in the documentation of NVIDIA's resiliency extension: 32 ranks, jump 8, factor 2.
TEST(ReplicationGroups, AreThoseOfTheResiliencyExtension) {
  const Replication replication{.jump = 8, .factor = 2};
  for (std::int64_t rank = 0; rank < 32; ++rank) {
    const std::int64_t first = rank < 16 ? rank % 8 : 16 + rank % 8;
    EXPECT_THAT(replication_group(rank, replication), ElementsAre(first, first + 8));
  }
}

TEST(ReplicationGroups, DivideTheRanks) {
  for (const std::int64_t jump : {1, 2, 3, 8}) {
    for (const std::int64_t factor : {2, 3, 4}) {
      const Replication replication{jump, factor};
      const std::int64_t num_ranks = 3 * jump * factor;
      EXPECT_EQ(replication_error(num_ranks, replication), "");
      EXPECT_NE(replication_error(num_ranks + jump, replication), "");
      for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
        const std::vector<std::int64_t> group = replication_group(rank, replication);
        EXPECT_EQ(std::ranges::count(group, rank), 1);
        EXPECT_THAT(group, SizeIs(factor));
        for (const std::int64_t member : group) {
          EXPECT_LT(member, num_ranks);
          EXPECT_EQ((member - rank) % jump, 0);
          EXPECT_EQ(replication_group(member, replication), group);
        }
      }
    }
  }
}

TEST(ReplicationGroups, ACopyGoesToEachOtherFolderOnce) {
  const auto copies = [](std::int64_t rank, std::int64_t per_folder, Replication replication) {
    return ranks_with_copies(rank, {owners_of(8, per_folder), true, replication});
  };
  EXPECT_THAT(copies(1, 2, {2, 2}), ElementsAre(3));
  EXPECT_THAT(copies(6, 2, {2, 4}), ElementsAre(0, 2, 4)) << "in the order of the group";
  EXPECT_THAT(copies(1, 2, {1, 2}), IsEmpty()) << "a host with its own copy";
  EXPECT_THAT(copies(0, 2, {1, 4}), ElementsAre(2)) << "and rank 3, which shares its folder";
  EXPECT_THAT(ranks_with_copies(1, {owners_of(8, 2), false, {}}), IsEmpty());
}

TEST(SpreadCheckpoints, AreCompleteWhenEveryFileIsInSomeFolder) {
  const std::vector<std::vector<HeldCheckpoint>> held{
      {{7, 1, 3, {"a", "b"}}, {8, 2, 3, {"a", "b"}}}, {{7, 1, 3, {"c"}}, {8, 3, 3, {"c"}}}, {}};
  const std::vector<SpreadCheckpoint> found = spread_checkpoints(held);
  ASSERT_THAT(found, SizeIs(3));
  EXPECT_EQ(found[0].identity, 2) << "more files than the other one of iteration 8";
  EXPECT_FALSE(found[0].is_complete());
  EXPECT_FALSE(found[1].is_complete()) << "another manifest, so other bytes";
  EXPECT_EQ(found[2].iteration, 7);
  EXPECT_TRUE(found[2].is_complete());
  EXPECT_THAT(found[2].leaders, ElementsAre(0, 1));
  EXPECT_EQ(parse_held(held_text(held[0])), held[0]);
}

class LocalCheckpointTest : public testing::Test {
 protected:
  const TemporaryFolder temporary_;
  std::int64_t ranks_per_host_ = 1;

  fs::path host(std::int64_t number) const {
    return temporary_ / ("host" + std::to_string(number));
  }
  fs::path host_of(const Rank& rank) const { return host(rank.index / ranks_per_host_); }
  fs::path folder(std::int64_t number, std::int64_t iteration) const {
    return host(number) / iteration_folder(iteration);
  }

  /// Saves `iteration` on all hosts, with `copies` or without.
  void save(const DataLayout& layout, std::int64_t iteration,
            std::optional<Replication> copies = Replication{}) const {
    on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
      save_on(rank, communicators, layout, iteration, copies);
    });
  }
  void save_on(const Rank& rank, Communicators& communicators, const DataLayout& layout,
               std::int64_t iteration, std::optional<Replication> copies,
               FileSystem* files = nullptr) const {
    RankRun run(layout, {}, rank, communicators);
    run.fill();
    const LocalPlacement placement{find_folder_owners(host_of(rank), rank.world, rank.device),
                                   copies.has_value(), copies.value_or(Replication{})};
    const AuxiliaryFiles tokenizer{{"tokenizer.json", "{}"}};
    SaveRequest request = run.request(files);
    request.progress.iteration = iteration;
    request.placement = &placement;
    if (rank.index == 0) request.tokenizer = &tokenizer;
    save_checkpoint(host_of(rank), request);
  }

  struct Loaded {
    std::int64_t iteration = -1;  ///< −1: none is complete
    std::int64_t num_fetched = 0;
    std::string said;  ///< by rank 0
  };
  /// Chooses, fetches and loads the newest checkpoint at `layout`, and checks every number of it.
  Loaded load(const DataLayout& layout) const {
    Loaded loaded;
    on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
      std::ostringstream out;
      const auto choice = choose_local_checkpoint({.root = host_of(rank),
                                                   .is_own = [](const Manifest&) { return true; },
                                                   .world = rank.world,
                                                   .device = rank.device},
                                                  out);
      if (rank.index == 0) loaded.said = out.str();
      if (!choice) return;
      const CheckpointSource source =
          open_checkpoint(choice->folder, CheckpointSource::Kind::megatron);
      EXPECT_EQ(source.identity, choice->identity);
      EXPECT_EQ(source.auxiliary_files.at("tokenizer.json"), "{}");
      RankRun run(layout, {}, rank, communicators);
      const FetchedShards fetched =
          fetch_local_shards(source, *run.store, run.optimizer.get(), rank.world);
      if (rank.index == 0) {
        loaded.iteration = choice->iteration;
        loaded.num_fetched = fetched.count;
      }
      load_weights(source, *run.store, run.optimizer->main_parameters());
      load_optimizer(source, *run.optimizer);
      run.expect_filled("iteration " + std::to_string(choice->iteration));
    });
    return loaded;
  }
};

const DataLayout kFourShards{.dp = 4, .distributed_optimizer = true};

TEST_F(LocalCheckpointTest, RanksOfOneFolderFindEachOther) {
  ranks_per_host_ = 3;
  on_data_ranks({.dp = 4}, [&](const Rank& rank, Communicators&) {
    EXPECT_THAT(find_folder_owners(host_of(rank), rank.world, rank.device).leaders,
                ElementsAre(0, 0, 0, 3));
  });
  EXPECT_TRUE(fs::is_empty(host(0)));
}

TEST_F(LocalCheckpointTest, EachHostKeepsItsShardsAndThoseOfItsGroup) {
  save(kFourShards, 1);
  EXPECT_TRUE(fs::exists(folder(0, 1) / "optimizer_00000.safetensors"));
  EXPECT_TRUE(fs::exists(folder(0, 1) / "optimizer_00001.safetensors")) << "a copy of rank 1's";
  EXPECT_FALSE(fs::exists(folder(0, 1) / "optimizer_00002.safetensors"));
  const Manifest manifest = read_manifest(folder(0, 1));
  for (const auto& [file, header] : manifest.headers) {
    int copies = 0;
    for (std::int64_t number = 0; number < 4; ++number)
      copies += fs::exists(folder(number, 1) / file) ? 1 : 0;
    EXPECT_EQ(copies, 2) << file;
  }
  EXPECT_EQ(read_file(folder(0, 1) / kManifestFile), read_file(folder(3, 1) / kManifestFile));
}

TEST_F(LocalCheckpointTest, AReplacedHostGetsItsShardsFromThePeers) {
  for (std::int64_t lost = 0; lost < 4; ++lost) {
    save(kFourShards, 1);
    fs::remove_all(host(lost));
    const Loaded loaded = load(kFourShards);
    EXPECT_EQ(loaded.iteration, 1) << "without host " << lost;
    EXPECT_EQ(loaded.said, "");
    EXPECT_TRUE(
        fs::exists(folder(lost, 1) / ("optimizer_0000" + std::to_string(lost) + ".safetensors")));
  }
}

TEST_F(LocalCheckpointTest, NothingIsFetchedWhereEveryHostHasWhatItNeeds) {
  save(kFourShards, 1, Replication{.jump = 1, .factor = 4});
  EXPECT_EQ(load(kFourShards).num_fetched, 0);
}

TEST_F(LocalCheckpointTest, NamesOfFilesAreGatheredOnlyIfAnyIsMissing) {
  save(kFourShards, 1, Replication{.jump = 1, .factor = 4});
  on_data_ranks(kFourShards, [&](const Rank& rank, Communicators& communicators) {
    RankRun run(kFourShards, {}, rank, communicators);
    const CheckpointSource source =
        open_checkpoint(folder(rank.index, 1), CheckpointSource::Kind::megatron);
    communicators.counters().take();
    fetch_local_shards(source, *run.store, run.optimizer.get(), rank.world);
    const std::vector<CommCount> rows = communicators.counters().take();
    ASSERT_THAT(rows, SizeIs(1));
    EXPECT_EQ(rows[0].operation, "all_reduce");
    EXPECT_EQ(rows[0].bytes, 8);
  });
}

TEST_F(LocalCheckpointTest, WithoutCopiesEachHostMustComeBack) {
  save(kFourShards, 1, std::nullopt);
  EXPECT_EQ(load(kFourShards).iteration, 1);
  fs::remove_all(host(2));
  const Loaded loaded = load(kFourShards);
  EXPECT_EQ(loaded.iteration, -1);
  EXPECT_THAT(loaded.said, HasSubstr("the local checkpoint of iteration 1 cannot be used"));
}

TEST_F(LocalCheckpointTest, TheNextOlderOneIsUsedWhenAllCopiesOfAShardAreLost) {
  save(kFourShards, 1, Replication{.jump = 1, .factor = 4});
  save(kFourShards, 2);
  fs::remove_all(folder(2, 2));
  fs::remove_all(folder(3, 2));
  const Loaded loaded = load(kFourShards);
  EXPECT_EQ(loaded.iteration, 1);
  EXPECT_THAT(loaded.said, HasSubstr("iteration 2 cannot be used, an older one is looked for: "));
  EXPECT_THAT(loaded.said, HasSubstr("hold 4 of its 8 files"));
  fs::remove_all(host(0));
  fs::remove_all(host(1));
  fs::remove_all(host(2));
  fs::remove_all(host(3));
  EXPECT_EQ(load(kFourShards).iteration, -1);
}

TEST_F(LocalCheckpointTest, ACopyReplacesADamagedShard) {
  save(kFourShards, 1);
  const auto damage = [&](std::int64_t number) {
    const fs::path path = folder(number, 1) / "optimizer_00001.safetensors";
    std::string bytes = read_file(path);
    bytes[bytes.size() - 3] ^= 1;
    write_file_atomically(path, bytes);
  };
  damage(1);
  Loaded loaded = load(kFourShards);
  EXPECT_EQ(loaded.iteration, 1);
  EXPECT_THAT(loaded.said, HasSubstr("a copy on another host replaces a damaged file"));
  EXPECT_GT(loaded.num_fetched, 0);
  for (std::int64_t number = 0; number < 4; ++number) {
    if (fs::exists(folder(number, 1) / "optimizer_00001.safetensors")) damage(number);
  }
  loaded = load(kFourShards);
  EXPECT_EQ(loaded.iteration, -1);
  EXPECT_THAT(loaded.said, HasSubstr("checksum does not match"));
}

TEST_F(LocalCheckpointTest, LoadsOnOtherLayoutsAndFewerRanks) {
  const DataLayout layouts[] = {{},
                                {.dp = 2},
                                {.dp = 3, .distributed_optimizer = true},
                                {.tp = 2},
                                {.dp = 2, .distributed_optimizer = true, .pp = 2}};
  for (const DataLayout& layout : layouts) {
    SCOPED_TRACE(layout.name());
    for (std::int64_t number = 0; number < 4; ++number) fs::remove_all(host(number));
    save({.dp = 2, .tp = 2, .distributed_optimizer = true}, 1, Replication{.jump = 2, .factor = 2});
    if (layout.world_size() == 4) fs::remove_all(host(1));
    // Hosts 2 and 3, which hold copies of hosts 0 and 1, do not come back where there are fewer.
    const Loaded loaded = load(layout);
    EXPECT_EQ(loaded.iteration, layout.world_size() == 1 ? -1 : 1);
  }
}

TEST_F(LocalCheckpointTest, SeveralRanksOfAHostShareItsFolder) {
  ranks_per_host_ = 2;
  save(kFourShards, 1, Replication{.jump = 2, .factor = 2});
  EXPECT_FALSE(fs::exists(host(2)));
  fs::remove_all(host(0));
  EXPECT_EQ(load(kFourShards).iteration, 1);
}

/// The disk of one of four hosts is full from a call on, which is another one each time.
TEST_F(LocalCheckpointTest, AFailedSaveOnOneHostLeavesTheLastOneComplete) {
  save(kFourShards, 1);
  std::size_t calls = 0;
  bool fails = true;
  for (std::size_t limit = 0; fails; limit += 1 + limit / 3) {
    SCOPED_TRACE(limit);
    FaultInjectionFileSystem files({.fault = Fault::full_disk, .at = limit});
    std::atomic<int> num_errors = 0;
    on_data_ranks(kFourShards, [&](const Rank& rank, Communicators& communicators) {
      try {
        save_on(rank, communicators, kFourShards, 2, Replication{},
                rank.index == 1 ? &files : nullptr);
      } catch (const UserError&) {
        ++num_errors;
      }
    });
    calls = files.calls().size();
    fails = num_errors > 0;
    EXPECT_TRUE(num_errors == 0 || num_errors == 4) << "all ranks fail or none";
    EXPECT_GE(load(kFourShards).iteration, fails ? 1 : 2);
    for (std::int64_t number = 0; number < 4 && fails; ++number) {
      EXPECT_TRUE(fs::exists(folder(number, 1) / kManifestFile));
      fs::remove_all(folder(number, 2));
    }
  }
  EXPECT_GT(calls, 10);
}

}  // namespace
}  // namespace megatron
