#include "megatron/checkpoint/local/replication_groups.h"

#include <algorithm>
#include <map>
#include <set>

namespace megatron {
namespace {

/// Round-robin over the ranks of each folder.
class RoundRobin {
 public:
  explicit RoundRobin(const FolderOwners& owners) {
    for (std::size_t rank = 0; rank < owners.leaders.size(); ++rank)
      folders_[owners.leaders[rank]].ranks.push_back(static_cast<std::int64_t>(rank));
  }
  std::int64_t next(std::int64_t leader) {
    Folder& folder = folders_.at(leader);
    return folder.ranks[folder.turn++ % folder.ranks.size()];
  }

 private:
  struct Folder {
    std::vector<std::int64_t> ranks = {};
    std::size_t turn = 0;
  };
  std::map<std::int64_t, Folder> folders_;
};

/// The leaders of the folders that hold a file, and of those that lack it.
struct Folders {
  std::set<std::int64_t> with = {}, without = {};
};

/// Returns the folders of each file that a rank needs.
std::map<std::size_t, Folders> folders_of_needed_files(const FolderOwners& owners,
                                                       const FilesByRank& needed,
                                                       const FilesByRank& held) {
  std::map<std::size_t, Folders> all;
  for (std::size_t rank = 0; rank < needed.size(); ++rank) {
    for (const std::size_t file : needed[rank]) all[file].without.insert(owners.leaders[rank]);
  }
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    const std::int64_t leader = owners.leaders[rank];
    for (const std::size_t file : held[rank]) {
      const auto found = all.find(file);
      if (found == all.end()) continue;
      found->second.with.insert(leader);
      found->second.without.erase(leader);
    }
  }
  return all;
}

}  // namespace

std::string replication_error(std::int64_t num_ranks, const Replication& replication) {
  const std::int64_t block = replication.jump * replication.factor;
  if (num_ranks % block == 0) return {};
  return "the number of ranks, " + std::to_string(num_ranks) + ", is no multiple of their product";
}

std::vector<std::int64_t> replication_group(std::int64_t rank, const Replication& replication) {
  const auto& [jump, factor] = replication;
  const std::int64_t first = rank / (jump * factor) * (jump * factor) + rank % jump;
  std::vector<std::int64_t> group;
  for (std::int64_t i = 0; i < factor; ++i) group.push_back(first + i * jump);
  return group;
}

std::vector<std::int64_t> FolderOwners::ranks_of(std::int64_t leader) const {
  std::vector<std::int64_t> ranks;
  for (std::size_t rank = 0; rank < leaders.size(); ++rank) {
    if (leaders[rank] == leader) ranks.push_back(static_cast<std::int64_t>(rank));
  }
  return ranks;
}

std::int64_t FolderOwners::num_folders() const {
  return static_cast<std::int64_t>(std::set(leaders.begin(), leaders.end()).size());
}

std::vector<std::int64_t> ranks_with_copies(std::int64_t rank, const LocalPlacement& placement) {
  std::vector<std::int64_t> ranks;
  if (!placement.has_copies) return ranks;
  std::vector<std::int64_t> group = replication_group(rank, placement.copies);
  std::ranges::rotate(group, std::ranges::find(group, rank));
  std::set<std::int64_t> folders;
  for (const std::int64_t member : group) {
    if (folders.insert(placement.owners.leader_of(member)).second && member != rank)
      ranks.push_back(member);
  }
  return ranks;
}

TransferPlan plan_transfers(const FolderOwners& owners, const FilesByRank& needed,
                            const FilesByRank& held) {
  TransferPlan plan;
  RoundRobin senders(owners), receivers(owners);
  for (const auto& [file, folders] : folders_of_needed_files(owners, needed, held)) {
    const auto& [with, without] = folders;
    if (without.empty()) continue;
    if (with.empty()) {
      plan.missing.push_back(file);
      continue;
    }
    auto source = std::next(with.begin(), static_cast<std::ptrdiff_t>(file % with.size()));
    for (const std::int64_t leader : without) {
      plan.transfers.push_back(
          {.file = file, .from = senders.next(*source), .to = receivers.next(leader)});
      if (++source == with.end()) source = with.begin();
    }
  }
  return plan;
}

}  // namespace megatron
