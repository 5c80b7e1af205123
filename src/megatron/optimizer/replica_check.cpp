#include "megatron/optimizer/replica_check.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "megatron/base/checksum.h"
#include "megatron/base/hardware_error.h"
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

/// Returns two hashes per parameter: one of its value and one of its precise value.
std::vector<std::int64_t> hashes_of(const std::vector<const Parameter*>& parameters) {
  std::vector<std::int64_t> hashes;
  for (const Parameter* parameter : parameters) {
    hashes.push_back(hash_of(parameter->value()));
    hashes.push_back(hash_of(parameter->precise_value()));
  }
  return hashes;
}

/// Hashes of a parameter's value and precise value.
using Hashes = std::pair<std::int64_t, std::int64_t>;

/// Returns the first rank that has what most ranks have.
std::size_t most_common(const std::vector<Hashes>& of_ranks) {
  std::size_t best = 0;
  std::ptrdiff_t most = 0;
  for (std::size_t i = 0; i < of_ranks.size(); ++i) {
    const std::ptrdiff_t count = std::ranges::count(of_ranks, of_ranks[i]);
    if (count > most) most = count, best = i;
  }
  return best;
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
    const std::size_t usual = most_common(of_ranks);
    std::string ranks;
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
      if (of_ranks[rank] != of_ranks[usual])
        ranks += (ranks.empty() ? "" : ", ") + std::to_string(all.comm->ranks()[rank]);
    }
    if (ranks.empty() || ++differences.count > kMaxNames) continue;
    differences.lines += "\n  " + parameters[p]->name() + ": ranks " + ranks +
                         " differ from rank " + std::to_string(all.comm->ranks()[usual]);
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
