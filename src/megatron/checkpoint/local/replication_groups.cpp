#include "megatron/checkpoint/local/replication_groups.h"

#include <algorithm>
#include <set>

namespace megatron {

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

}  // namespace megatron
