#include "megatron/ops/kv_cache.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace megatron {
namespace {

/// Writes `rows` at position `start` of `cache`, doubles its capacity when needed, and returns a
/// view up to the end of the rows.
at::Tensor write(at::Tensor& cache, const at::Tensor& rows, std::int64_t start) {
  const std::int64_t end = start + rows.size(0);
  if (!cache.defined() || cache.size(0) < end) {
    auto shape = rows.sizes().vec();
    shape[0] = std::max(end, cache.defined() ? 2 * cache.size(0) : end + 64);
    at::Tensor grown = at::empty(shape, rows.options());
    if (start > 0) grown.narrow(0, 0, start).copy_(cache.narrow(0, 0, start));
    cache = grown;
  }
  cache.narrow(0, start, rows.size(0)).copy_(rows);
  return cache.narrow(0, 0, end);
}

bool are_first_channels(const at::Tensor& value, const at::Tensor& key) {
  return value.is_alias_of(key) && value.storage_offset() == key.storage_offset();
}

}  // namespace

std::pair<at::Tensor, at::Tensor> LayerKvCache::append(const at::Tensor& key,
                                                       const at::Tensor& value,
                                                       std::int64_t start) {
  const at::Tensor keys = write(key_, key, start);
  return {keys, are_first_channels(value, key) ? keys.narrow(-1, 0, value.size(-1))
                                               : write(value_, value, start)};
}

std::int64_t LayerKvCache::elements_per_token() const {
  std::int64_t count = 0;
  for (const at::Tensor* kept : {&key_, &value_})
    if (kept->defined()) count += kept->numel() / kept->size(0);
  return count;
}

at::Tensor cached_attention(const AttentionInputs& inputs, AttentionOptions options,
                            const SequencePlacement& placement, const Caches& caches,
                            std::string_view layer) {
  std::vector<at::Tensor> out;
  for (SequenceCache* cache : caches) {
    const PositionRun rows = rows_of_sequence(placement, std::ssize(out));
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, rows.first, rows.count); };
    options.q_start = cache->length;
    const auto [keys, values] =
        cache->of_layer<LayerKvCache>(layer).append(own(inputs.k), own(inputs.v), options.q_start);
    out.push_back(core_attention(own(inputs.q), keys, values, options).out);
  }
  return out.size() == 1 ? out.front() : at::cat(out);
}

}  // namespace megatron
