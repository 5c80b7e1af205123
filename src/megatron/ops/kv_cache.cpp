// Shapes: b samples, g groups of keys and values with d and dv channels.
#include "megatron/ops/kv_cache.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "kernels/cpu/attention.h"
#include "megatron/base/error.h"
#include "megatron/ops/cuda_row_operations.h"
#include "megatron/ops/fused_attention.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/paged_attention.h"

namespace megatron {
namespace {

static_assert(kBlockPositions == kernels::kAttentionKeys);

bool is_packed(const at::Tensor& key) {
  return key.is_cpu() && fused_attention_supports(key.scalar_type());
}

/// Rows keep values that are the first channels of the keys, as latents are, once. Packed blocks
/// have both, because the two GEMMs read them in different orders.
bool are_first_channels(const at::Tensor& value, const at::Tensor& key) {
  return value.is_alias_of(key) && value.storage_offset() == key.storage_offset();
}

BlockSize block_size(const at::Tensor& key, const at::Tensor& value, KvCacheType type) {
  const std::int64_t units = key.size(1) * key.size(2), d = key.size(3), dv = value.size(3);
  if (is_packed(key)) {
    const auto& micro_kernel = kernels::gemm_micro_kernel(kernel_type(key.scalar_type()));
    return {.bytes = units * kernels::packed_block_bytes(micro_kernel, d, dv, type),
            .elements_per_token = units * (d + dv)};
  }
  if (type != KvCacheType::same) {
    throw UserError({"an 8-bit KV cache",
                     c10::str("keys of ", key.scalar_type(), " on ", key.device()),
                     "use bf16, fp16 or fp32 on a CPU, or a cache of the model's type"});
  }
  const std::int64_t kept = units * (are_first_channels(value, key) ? d : d + dv);
  return {.bytes = kBlockPositions * kept * key.element_size(),
          .elements_per_token = kept,
          .device = key.device()};
}

/// Returns the blocks of a layer, after those of the next `count` tokens of a sequence exist.
LayerBlocks& blocks_for(const SequenceCache& cache, std::int64_t count, std::string_view layer,
                        const BlockSize& size) {
  const std::int64_t end = cache.length + count;
  MEGATRON_CHECK(std::ssize(cache.blocks) * kBlockPositions >= end, cache.blocks.size(),
                 " blocks for ", end, " tokens");
  LayerBlocks& blocks = cache.memory().layer(layer, size);
  for (std::int64_t i = 0; i * kBlockPositions < end; ++i) {
    const std::int32_t number = cache.blocks[static_cast<std::size_t>(i)];
    if ((i + 1) * kBlockPositions > cache.length) blocks.reach(number);
    MEGATRON_CHECK(number < blocks.count(), "block ", number, " of ", cache.length,
                   " cached tokens, and ", layer, " has ", blocks.count());
  }
  return blocks;
}

/// Appends keys and values to the first `start` ones in blocks of rows [b, g, d + dv], and returns
/// those of all positions.
std::pair<at::Tensor, at::Tensor> append_plain(const at::Tensor& key, const at::Tensor& value,
                                               std::int64_t start, const SequenceCache& cache,
                                               const LayerBlocks& blocks) {
  const bool is_latent = are_first_channels(value, key);
  const at::Tensor rows = is_latent ? key : at::cat({key, value}, -1);
  const std::int64_t end = start + rows.size(0);
  std::vector<at::Tensor> parts;
  for (std::int64_t first = 0; first < end; first += kBlockPositions) {
    const std::int32_t number = cache.blocks[static_cast<std::size_t>(first / kBlockPositions)];
    const at::Tensor block = blocks.block(number)
                                 .view(rows.scalar_type())
                                 .view({-1, rows.size(1), rows.size(2), rows.size(3)});
    const std::int64_t begin = std::max(first, start),
                       stop = std::min(first + kBlockPositions, end);
    if (begin < stop)
      block.narrow(0, begin - first, stop - begin)
          .copy_(rows.narrow(0, begin - start, stop - begin));
    parts.push_back(block.narrow(0, 0, stop - first));
  }
  const at::Tensor all = at::cat(parts);
  return {all.narrow(-1, 0, key.size(-1)),
          all.narrow(-1, is_latent ? 0 : key.size(-1), value.size(-1))};
}

}  // namespace

at::Tensor cached_attention(const AttentionInputs& inputs, AttentionOptions options,
                            const SequencePlacement& placement, const Caches& caches,
                            std::string_view layer, const Axis& cp) {
  at::Tensor k = inputs.k, v = inputs.v;
  if (cp.size > 1) {
    const at::Tensor both = gather_placed_rows(at::cat({k, v}, -1), placement, cp);
    k = both.narrow(-1, 0, inputs.k.size(-1));
    v = both.narrow(-1, inputs.k.size(-1), inputs.v.size(-1));
  }
  const bool packs = is_packed(k),
             reads_blocks = packs || (k.is_cuda() && !options.distance_bias.defined());
  const auto rank = static_cast<std::size_t>(cp.rank);
  const bool is_shared = placement.rows_of(cp.rank) < placement.length;
  const std::vector<SequencePiece> pieces = pieces_of(placement.runs_of[rank], placement);
  std::vector<PackedSequence> appended, queried;
  std::vector<at::Tensor> out;
  auto piece = pieces.begin();
  for (std::size_t i = 0; i < caches.size(); ++i) {
    const SequenceCache& cache = *caches[i];
    const PositionRun rows = rows_of_sequence(placement, static_cast<std::int64_t>(i));
    const KvCacheType type = cache.memory().type();
    const LayerBlocks& blocks = blocks_for(cache, rows.count, layer, block_size(k, v, type));
    std::pair<at::Tensor, at::Tensor> kept;
    if (reads_blocks)
      appended.push_back(
          {rows.first, rows.count, cache.length, &blocks, cache.blocks.data(), type});
    else
      kept = append_plain(k.narrow(0, rows.first, rows.count), v.narrow(0, rows.first, rows.count),
                          cache.length, cache, blocks);
    for (; piece != pieces.end() && piece->sequence == static_cast<std::int64_t>(i); ++piece) {
      const auto& [first, count] = piece->positions;
      const std::int64_t start = cache.length + first;
      if (reads_blocks) {
        queried.push_back(
            {piece->row, count, start, &blocks, cache.blocks.data(), type, /*is_appended=*/true});
      } else if (inputs.q.defined()) {
        options.q_start = start;
        out.push_back(core_attention(inputs.q.narrow(0, piece->row, count),
                                     kept.first.narrow(0, 0, start + count),
                                     kept.second.narrow(0, 0, start + count), options)
                          .out);
      }
    }
  }
  const auto attend = [&](const at::Tensor& q, const std::vector<PackedSequence>& sequences) {
    return packs ? packed_attention({q, k, v}, options, sequences)
                 : paged_attention({q, k, v}, options, sequences, cuda_row_operations());
  };
  if (reads_blocks && !is_shared) return attend(inputs.q, appended);
  if (reads_blocks) attend({}, appended);
  if (!inputs.q.defined()) return {};
  if (reads_blocks) return attend(inputs.q, queried);
  if (out.empty()) return inputs.q.new_empty({0, k.size(1), inputs.q.size(2) * v.size(3)});
  return at::cat(out);
}

at::Tensor cached_cross_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                                  const SequencePlacement& placement,
                                  const SequencePlacement* texts, const Caches& caches,
                                  std::string_view layer) {
  Caches fresh;
  std::vector<std::int64_t> lengths;
  for (SequenceCache* cache : caches) {
    lengths.push_back(cache->num_encoded);
    if (cache->num_encoded > 0) continue;
    MEGATRON_CHECK(texts != nullptr && cache->length == 0, "a sequence of ", cache->length,
                   " cached tokens, and no text that its encoder has seen");
    lengths.back() = rows_of_sequence(*texts, std::ssize(fresh)).count;
    fresh.push_back(cache);
  }
  if (!fresh.empty()) cached_attention({{}, inputs.k, inputs.v}, {}, *texts, fresh, layer);
  const at::Tensor& q = inputs.q;
  const at::Tensor k = q.new_empty({0, 1, q.size(2), q.size(3)}), v = at::empty_like(k);
  const bool packs = is_packed(q);
  std::vector<PackedSequence> queried;
  std::vector<at::Tensor> out;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    const SequenceCache& cache = *caches[i];
    const PositionRun rows = rows_of_sequence(placement, static_cast<std::int64_t>(i));
    const KvCacheType type = cache.memory().type();
    const LayerBlocks& blocks = cache.memory().layer(layer, block_size(k, v, type));
    if (packs || q.is_cuda()) {
      queried.push_back({rows.first, rows.count, 0, &blocks, cache.blocks.data(), type,
                         /*is_appended=*/true, lengths[i]});
    } else {
      const auto [keys, values] = append_plain(k, v, lengths[i], cache, blocks);
      out.push_back(core_attention(q.narrow(0, rows.first, rows.count), keys, values, options).out);
    }
  }
  if (!out.empty()) return at::cat(out);
  // Nothing is appended: of keys and values only the sizes are read, which are the queries'.
  return packs ? packed_attention({q, q, q}, options, queried)
               : paged_attention({q, q, q}, options, queried, cuda_row_operations());
}

}  // namespace megatron
