// Plans of which rank sends which file of a local checkpoint to which other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "checkpoint/owners_of.h"
#include "megatron/checkpoint/local/replication_groups.h"

namespace megatron {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

/// Lets every rank make its transfers in order, each of which needs both ranks at once.
bool ends(const std::vector<FileTransfer>& transfers, std::size_t num_ranks) {
  std::vector<std::vector<std::size_t>> queues(num_ranks);
  for (std::size_t i = 0; i < transfers.size(); ++i) {
    queues[static_cast<std::size_t>(transfers[i].from)].push_back(i);
    queues[static_cast<std::size_t>(transfers[i].to)].push_back(i);
  }
  std::vector<std::size_t> next(num_ranks, 0);
  for (std::size_t done = 0; done < transfers.size(); ++done) {
    bool moved = false;
    for (std::size_t i = 0; i < transfers.size() && !moved; ++i) {
      auto &from = next[static_cast<std::size_t>(transfers[i].from)],
           &to = next[static_cast<std::size_t>(transfers[i].to)];
      const auto& out = queues[static_cast<std::size_t>(transfers[i].from)];
      const auto& in = queues[static_cast<std::size_t>(transfers[i].to)];
      if (from < out.size() && to < in.size() && out[from] == i && in[to] == i) {
        ++from;
        ++to;
        moved = true;
      }
    }
    if (!moved) return false;
  }
  return true;
}

TEST(Transfers, BringEachMissingFileOnceToEachFolder) {
  constexpr std::size_t kRanks = 8, kFiles = 23;
  std::uint64_t state = 5;
  const auto chance = [&](unsigned percent) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % 100 < percent;
  };
  const FolderOwners owners = owners_of(kRanks, 2);
  for (int round = 0; round < 200; ++round) {
    FilesByRank needed(kRanks), held(kRanks);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      for (std::size_t file = 0; file < kFiles; ++file) {
        if (chance(50)) needed[rank].push_back(file);
        if (rank % 2 == 0 && chance(40)) held[rank].push_back(file);
      }
    }
    const auto holds = [&](std::int64_t leader, std::size_t file) {
      return std::ranges::count(held[static_cast<std::size_t>(leader)], file) > 0;
    };
    const TransferPlan plan = plan_transfers(owners, needed, held);
    std::set<std::pair<std::size_t, std::int64_t>> moved;
    for (const FileTransfer& transfer : plan.transfers) {
      const std::int64_t to = owners.leader_of(transfer.to), from = owners.leader_of(transfer.from);
      EXPECT_TRUE(holds(from, transfer.file));
      EXPECT_FALSE(holds(to, transfer.file));
      EXPECT_TRUE(moved.emplace(transfer.file, to).second) << "a file came twice";
    }
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const std::int64_t leader = owners.leaders[rank];
      for (const std::size_t file : needed[rank]) {
        if (holds(leader, file)) continue;
        EXPECT_NE(moved.contains({file, leader}), std::ranges::count(plan.missing, file) > 0);
      }
    }
    EXPECT_TRUE(ends(plan.transfers, kRanks)) << "ranks wait in a circle";
  }
}

TEST(Transfers, AreSpreadOverTheCopies) {
  std::vector<std::size_t> all(12);
  std::iota(all.begin(), all.end(), 0);
  const FilesByRank needed(6, all), held{all, {}, all, {}, {}, {}};
  std::map<std::int64_t, int> sent, taken;
  for (const FileTransfer& transfer : plan_transfers(owners_of(6, 2), needed, held).transfers) {
    ++sent[transfer.from];
    ++taken[transfer.to];
  }
  EXPECT_EQ(sent, (std::map<std::int64_t, int>{{0, 3}, {1, 3}, {2, 3}, {3, 3}}));
  EXPECT_EQ(taken, (std::map<std::int64_t, int>{{4, 6}, {5, 6}}));
}

// A step for each rank and file would be some ten thousand million.
TEST(Transfers, OfManyRanksArePlannedInTimeOfTheirFiles) {
  constexpr std::size_t kRanks = 131'072, kPerFolder = 8;
  FilesByRank needed(kRanks), held(kRanks);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    needed[rank] = {rank};
    held[rank / kPerFolder * kPerFolder].push_back(rank);
    held[(rank / kPerFolder + 1) * kPerFolder % kRanks].push_back(rank);
  }
  held[0].clear();  // its host was replaced
  const TransferPlan plan = plan_transfers(owners_of(kRanks, kPerFolder), needed, held);
  EXPECT_THAT(plan.missing, IsEmpty());
  ASSERT_THAT(plan.transfers, SizeIs(kPerFolder));
  for (std::size_t i = 0; i < kPerFolder; ++i) {
    const auto to = static_cast<std::int64_t>(i), from = to + std::int64_t{kPerFolder};
    EXPECT_EQ(plan.transfers[i], (FileTransfer{i, from, to}));
  }
}

}  // namespace
}  // namespace megatron
