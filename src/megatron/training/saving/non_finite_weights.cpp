#include "megatron/training/saving/non_finite_weights.h"

#include <algorithm>

#include "megatron/checkpoint/checkpoint_source.h"
#include "megatron/checkpoint/non_finite.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/resilience/diagnosis/tensor_statistics.h"

namespace megatron {
namespace {

/// Describes the first non-finite weight of this rank; "" when all are finite.
std::string first_non_finite(const ParamStore& store) {
  const auto is_finite = [](const ParamBucket& bucket) {
    return !bucket.offloads_values && count_non_finite(bucket.kept_value()) == 0;
  };
  if (std::ranges::all_of(store.buckets(), is_finite)) return {};
  for (const ParameterPiece& piece : store.kept_pieces()) {
    const at::Tensor flat = store.read_kept(piece);
    if (count_non_finite(flat) > 0)
      return piece.parameter->name() + " holds " + describe(tensor_statistics(flat));
  }
  return {};
}

}  // namespace

std::string non_finite_weights(const CheckpointSource& source, const ParamStore& store,
                               const Rank& rank) {
  const std::vector<std::string> found =
      all_gather_strings({rank.world, rank.device}, first_non_finite(store));
  const auto first =
      std::ranges::find_if(found, [](const std::string& text) { return !text.empty(); });
  return first == found.end()
             ? ""
             : source.folder.string() + " holds weights that are not finite: " + *first;
}

}  // namespace megatron
