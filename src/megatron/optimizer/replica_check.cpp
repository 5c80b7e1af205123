#include "megatron/optimizer/replica_check.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/base/words.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/object_collectives.h"

namespace megatron {
namespace {

constexpr std::size_t kMaxNames = 8;

std::int64_t hash_of(const at::Tensor& tensor) {
  const at::Tensor here = tensor.detach().cpu().contiguous();
  const std::span bytes(static_cast<const std::byte*>(here.const_data_ptr()), here.nbytes());
  return static_cast<std::int64_t>(checksum(bytes));
}

/// Returns two hashes per parameter: one of its value, and one of its main weight, or 0 without
/// one.
std::vector<std::int64_t> hashes_of(const std::vector<const Parameter*>& parameters) {
  std::vector<std::int64_t> hashes;
  for (const Parameter* parameter : parameters) {
    hashes.push_back(hash_of(parameter->value()));
    hashes.push_back(parameter->has_main() ? hash_of(parameter->precise_value()) : 0);
  }
  return hashes;
}

/// Hashes of a parameter's value and main weight.
using Hashes = std::pair<std::int64_t, std::int64_t>;
using Ranks = std::vector<std::int64_t>;

/// Returns the ranks that hold one value, for each value, by their first ranks.
std::vector<Ranks> ranks_by_value(const std::vector<Hashes>& of_ranks, const Ranks& numbers) {
  std::map<Hashes, Ranks> by_hashes;
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
    by_hashes[of_ranks[rank]].push_back(numbers[rank]);
  std::vector<Ranks> groups;
  for (auto& [hashes, ranks] : by_hashes) groups.push_back(std::move(ranks));
  std::ranges::sort(groups);
  return groups;
}

/// Says which ranks differ from the majority. Without a majority no value is known to be right.
std::string difference_text(const std::vector<Ranks>& groups, std::size_t num_ranks) {
  const auto usual = std::ranges::find_if(
      groups, [&](const Ranks& ranks) { return 2 * ranks.size() > num_ranks; });
  if (usual != groups.end()) {
    Ranks others;
    for (auto group = groups.begin(); group != groups.end(); ++group) {
      if (group != usual) others.insert(others.end(), group->begin(), group->end());
    }
    std::ranges::sort(others);
    return "ranks " + joined_text(others) + " differ from rank " + std::to_string(usual->front());
  }
  const std::string names = joined_text(groups, " and ", [](const Ranks& ranks) {
    return ranks.size() == 1 ? joined_text(ranks) : "(" + joined_text(ranks) + ")";
  });
  return "ranks " + names +
         " differ, and which of them is right is unknown: suspect the hosts of all";
}

/// Differences between replicas: the number of parameters, and a line for each of the first.
struct Differences {
  std::size_t count = 0;
  std::string lines = {};
};

/// Compares parameters that all ranks of `all` hold.
void compare(const std::vector<const Parameter*>& parameters, const Axis& all, c10::Device device,
             Differences& differences) {
  if (all.size == 1) return;
  const std::vector<std::vector<std::int64_t>> hashes =
      all_gather_numbers({all, device}, hashes_of(parameters), "hashes of weights");
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    std::vector<Hashes> of_ranks;
    for (const std::vector<std::int64_t>& numbers : hashes)
      of_ranks.emplace_back(numbers[2 * p], numbers[2 * p + 1]);
    if (std::ranges::count(of_ranks, of_ranks.front()) == std::ssize(of_ranks)) continue;
    if (++differences.count > kMaxNames) continue;
    differences.lines +=
        "\n  " + parameters[p]->name() + ": " +
        difference_text(ranks_by_value(of_ranks, all.comm->ranks()), of_ranks.size());
  }
}

}  // namespace

void check_replicas(const ParamStore& store) {
  Differences differences;
  for (std::size_t group = 0; group < store.groups().size(); ++group) {
    std::vector<const Parameter*> parameters;
    for (const Parameter* parameter : store.parameters()) {
      if (store.group_of(*parameter) == group) parameters.push_back(parameter);
    }
    compare(parameters, store.groups()[group].data_parallel.all, store.device(), differences);
  }
  if (differences.count == 0) return;
  if (differences.count > kMaxNames)
    differences.lines += "\n  and " + std::to_string(differences.count - kMaxNames) + " more";
  throw HardwareError(
      "data-parallel replicas hold different weights "
      "(--check-weight-hash-across-dp-replicas-interval):" +
      differences.lines +
      "\n  fix: resume from the last checkpoint; look for faulty hardware where ranks differ");
}

}  // namespace megatron
