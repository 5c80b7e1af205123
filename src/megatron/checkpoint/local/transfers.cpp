#include "megatron/checkpoint/local/transfers.h"

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

}  // namespace

TransferPlan plan_transfers(const FolderOwners& owners, const FileMarks& needed,
                            const FileMarks& held) {
  TransferPlan plan;
  RoundRobin senders(owners), receivers(owners);
  const std::size_t num_files = needed.empty() ? 0 : needed.front().size();
  for (std::size_t file = 0; file < num_files; ++file) {
    std::set<std::int64_t> with, without;  // leaders
    for (std::size_t rank = 0; rank < needed.size(); ++rank) {
      const std::int64_t leader = owners.leaders[rank];
      const bool is_held = held[static_cast<std::size_t>(leader)][file];
      if (is_held) with.insert(leader);
      if (!is_held && needed[rank][file]) without.insert(leader);
    }
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
