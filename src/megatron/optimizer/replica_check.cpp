#include "megatron/optimizer/replica_check.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
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
std::vector<std::int64_t> hashes_of(const ParamStore& store) {
  std::vector<std::int64_t> hashes;
  for (const Parameter* parameter : store.parameters()) {
    hashes.push_back(hash_of(parameter->value()));
    hashes.push_back(hash_of(parameter->precise_value()));
  }
  return hashes;
}

}  // namespace

void check_replicas(const ParamStore& store) {
  const Axis& all = store.data_parallel().all;
  if (all.size == 1) return;
  const std::vector<std::vector<std::int64_t>> hashes =
      all_gather_numbers({all, store.device()}, hashes_of(store), "hashes of weights");
  std::string differences;
  std::size_t num_different = 0;
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    std::string ranks;
    for (std::size_t rank = 1; rank < hashes.size(); ++rank) {
      if (hashes[rank][2 * p] != hashes[0][2 * p] ||
          hashes[rank][2 * p + 1] != hashes[0][2 * p + 1])
        ranks += (ranks.empty() ? "" : ", ") + std::to_string(all.comm->ranks()[rank]);
    }
    if (ranks.empty() || ++num_different > kMaxNames) continue;
    differences += "\n  " + store.parameters()[p]->name() + ": ranks " + ranks +
                   " differ from rank " + std::to_string(all.comm->ranks().front());
  }
  if (num_different == 0) return;
  if (num_different > kMaxNames)
    differences += "\n  and " + std::to_string(num_different - kMaxNames) + " more";
  throw UserError(
      {"data-parallel replicas hold different weights "
       "(--check-weight-hash-across-dp-replicas-interval)",
       differences,
       "resume from the last checkpoint; look for faulty hardware where ranks differ"});
}

}  // namespace megatron
