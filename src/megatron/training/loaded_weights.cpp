#include "megatron/training/loaded_weights.h"

#include <ATen/ops/isfinite.h>

#include <algorithm>

#include "megatron/parallel/gather_texts.h"
#include "megatron/training/diagnosis/tensor_statistics.h"

namespace megatron {
namespace {

/// The first weight of this rank that is not finite, in words; "" when all are.
std::string first_non_finite(const ParamStore& store) {
  const auto is_finite = [](const at::Tensor& tensor) {
    return at::isfinite(tensor).all().item<bool>();
  };
  if (std::ranges::all_of(store.buckets(),
                          [&](const ParamBucket& bucket) { return is_finite(bucket.value); }))
    return {};
  for (const Parameter* parameter : store.parameters()) {
    if (const TensorStatistics statistics = tensor_statistics(parameter->value());
        !statistics.finite())
      return parameter->name() + " holds " + describe(statistics);
  }
  return {};
}

}  // namespace

std::string non_finite_weights(const CheckpointSource& source, const ParamStore& store,
                               const Rank& rank) {
  const std::vector<std::string> found =
      gather_texts(rank.world, first_non_finite(store), rank.device);
  const auto first =
      std::ranges::find_if(found, [](const std::string& text) { return !text.empty(); });
  return first == found.end()
             ? ""
             : source.folder.string() + " holds weights that are not finite: " + *first;
}

}  // namespace megatron
