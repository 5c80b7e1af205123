#include "megatron/models/pass.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/layer_plan.h"
#include "megatron/config/transformer_config.h"
#include "megatron/ops/row_pieces.h"
#include "megatron/ops/sequence_placement.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// Sets the place of this rank's hidden rows among the `rows` rows of the microbatch.
void place_rows(std::int64_t rows, const Rank& rank, ForwardContext& context) {
  RowsInSequences places;
  if (context.placement != nullptr) {
    const auto& runs = context.placement->runs_of[static_cast<std::size_t>(context.cp->rank)];
    places = rows_in_sequences(runs, *context.placement);
    context.row_positions.each = places.positions.to(rank.device);
    if (context.placement->is_packed() && context.training) {
      context.row_positions.sequences = places.sequences.to(rank.device);
      context.row_positions.ordinals =
          at::gather(context.sample_ordinals, 0, context.row_positions.sequences);
    }
  }
  if (!context.lengths.empty()) {
    const bool is_packed = context.placement != nullptr && context.placement->is_packed();
    at::Tensor lengths = at::tensor(context.lengths, at::kLong);
    if (is_packed) lengths = lengths.index_select(0, places.sequences).unsqueeze(1);
    if (!places.positions.defined()) places.positions = at::arange(rows, at::kLong);
    context.row_positions.padding = (places.positions.unsqueeze(1) >= lengths).to(rank.device);
  }
  if (!context.sequence_parallel) return;
  MEGATRON_CHECK(rows % rank.tp.size == 0, "a sequence of ", rows,
                 " cannot be split over tp=", rank.tp.size);
  const std::int64_t own = rows / rank.tp.size;
  context.first_row = rank.tp.rank * own;
  context.row_positions = context.row_positions.slice(context.first_row, own);
}

/// Returns the number of new tokens of each sequence; unpacked samples count as one.
std::vector<std::int64_t> lengths_of(const Microbatch& microbatch) {
  if (!microbatch.packed) return {microbatch.at("tokens").size(1)};
  std::vector<std::int64_t> lengths = microbatch.packed->cu_seqlens;
  std::adjacent_difference(lengths.begin(), lengths.end(), lengths.begin());
  lengths.erase(lengths.begin());
  return lengths;
}

/// A pass with fewer rows than this for each chunk of a rank of cp is not divided.
constexpr std::int64_t kLeastChunk = 64;

/// Returns how many last tokens of each sequence count, with the default filled in.
std::vector<std::int64_t> last_counts(const Pass& pass, const std::vector<std::int64_t>& counts) {
  const std::vector<std::int64_t> lengths = lengths_of(pass.microbatch);
  if (counts.empty()) return std::vector<std::int64_t>(lengths.size(), 1);
  MEGATRON_CHECK(counts.size() == lengths.size() && pass.microbatch.at("tokens").size(0) == 1,
                 counts.size(), " numbers of rows for ", lengths.size(), " sequences");
  for (std::size_t i = 0; i < lengths.size(); ++i)
    MEGATRON_CHECK(counts[i] >= 0 && counts[i] <= lengths[i], counts[i], " rows of ", lengths[i],
                   " tokens");
  return counts;
}

}  // namespace

Pass with_microbatch(const Pass& pass, const Microbatch& microbatch) {
  return {.microbatch = microbatch,
          .wants = pass.wants,
          .training = pass.training,
          .recomputes_all_layers = pass.recomputes_all_layers,
          .caches = pass.caches,
          .encoder = pass.encoder,
          .num_logits = pass.num_logits,
          .depth = pass.depth,
          .rows = pass.rows,
          .last_hidden = pass.last_hidden,
          .routed_experts = pass.routed_experts};
}

Microbatch microbatch_of(const std::vector<std::span<const std::int64_t>>& sequences) {
  PackedSequences packed{.cu_seqlens = {0}};
  for (const auto& ids : sequences)
    packed.cu_seqlens.push_back(packed.cu_seqlens.back() + std::ssize(ids));
  at::Tensor tokens = at::empty({1, packed.cu_seqlens.back()}, at::kLong);
  auto* to = tokens.mutable_data_ptr<std::int64_t>();
  for (const auto& ids : sequences) to = std::ranges::copy(ids, to).out;
  Microbatch microbatch{.tensors = {{"tokens", tokens}}, .sample_ordinals = {}};
  if (sequences.size() > 1) microbatch.packed = std::move(packed);
  return microbatch;
}

Microbatch own_rows(Microbatch microbatch, const Caches& caches, const Axis& cp) {
  const std::int64_t length = microbatch.at("tokens").size(1);
  if (cp.size == 1 || length < 2 * cp.size * kLeastChunk) return microbatch;
  microbatch.tensors["position_ids"] = position_ids({.microbatch = microbatch, .caches = &caches});
  if (!microbatch.packed) microbatch.packed = {.cu_seqlens = {0, length}};
  microbatch.packed->hybrid = {.num_ranks = cp.size, .parts = microbatch.packed->cu_seqlens};
  const at::Tensor rows =
      positions_of(placement_of(microbatch, cp.size).runs_of[static_cast<std::size_t>(cp.rank)]);
  for (const char* name : {"tokens", "position_ids"})
    microbatch.tensors[name] = at::index_select(microbatch.at(name), 1, rows);
  return microbatch;
}

bool is_sequence_parallel(const Pass& pass, const Rank& rank) {
  return rank.sequence_parallel && (pass.training || pass.wants == Wants::loss);
}

ForwardContext forward_context(const Pass& pass, const TransformerConfig& config,
                               const Rank& rank) {
  const Microbatch& microbatch = pass.microbatch;
  ForwardContext context{.seed = rank.seed,
                         .training = pass.training,
                         .sample_ordinals = microbatch.sample_ordinals,
                         .tokens = microbatch.at("tokens").to(rank.device),
                         .caches = pass.caches};
  if (microbatch.has("document_ids")) {
    context.document_ids = microbatch.at("document_ids");
    if (has_recurrent_layers(config))
      context.documents = document_pieces(context.document_ids.cpu());
  }
  if (microbatch.has("encoder_document_ids"))
    context.encoder_document_ids = microbatch.at("encoder_document_ids");
  const bool has_all_rows = pass.caches != nullptr && microbatch.hybrid() == nullptr;
  const Axis& cp = has_all_rows ? rank.context_axis(1) : context_axis(microbatch, rank);
  MEGATRON_CHECK(pass.caches == nullptr || pass.caches->size() == lengths_of(microbatch).size(),
                 "a pass needs a cache for each sequence");
  if (cp.size > 1 || microbatch.packed || pass.caches != nullptr) {
    auto placement = std::make_shared<SequencePlacement>(placement_of(microbatch, cp.size));
    placement->move_to(rank.device);
    context.cp = &cp;
    context.placement = std::move(placement);
  }
  if (config.moe.num_experts > 0) context.lengths = microbatch.lengths;
  if (pass.encoder != nullptr)
    context.encoder_placement =
        std::make_shared<const SequencePlacement>(placement_of(*pass.encoder, 1));
  context.sequence_parallel = is_sequence_parallel(pass, rank);
  context.recomputes_all_layers = pass.recomputes_all_layers;
  if (microbatch.has("aux_loss_gradient"))
    context.aux_loss_gradient = microbatch.at("aux_loss_gradient");
  place_rows(context.tokens.size(1), rank, context);
  return context;
}

at::Tensor position_ids(const Pass& pass) {
  if (pass.microbatch.has("position_ids")) return pass.microbatch.at("position_ids");
  std::vector<PositionRun> runs;
  for (const std::int64_t length : lengths_of(pass.microbatch)) {
    const std::int64_t first = pass.caches != nullptr ? (*pass.caches)[runs.size()]->length : 0;
    runs.push_back({first, length});
  }
  return positions_of(runs).unsqueeze(0);
}

std::int64_t num_last_rows(const Pass& pass, const std::vector<std::int64_t>& counts) {
  const std::vector<std::int64_t> own = last_counts(pass, counts);
  return std::accumulate(own.begin(), own.end(), std::int64_t{0}) *
         pass.microbatch.at("tokens").size(0);
}

at::Tensor last_rows(const at::Tensor& rows_sb, const Pass& pass,
                     const std::vector<std::int64_t>& counts, const ForwardContext& context) {
  const std::vector<std::int64_t> own = last_counts(pass, counts);
  if (!pass.microbatch.packed) return rows_sb.narrow(0, rows_sb.size(0) - own.front(), own.front());
  std::vector<std::int64_t> rows;
  for (std::size_t i = 0; i < own.size(); ++i) {
    const std::int64_t end = pass.microbatch.packed->cu_seqlens[i + 1];
    for (std::int64_t row = end - own[i]; row < end; ++row) rows.push_back(row);
  }
  if (context.cp != nullptr && context.cp->size > 1)
    return gather_placed_rows(rows_sb, *context.placement, *context.cp, rows);
  return at::index_select(rows_sb, 0, at::tensor(rows, at::kLong).to(rows_sb.device()));
}

at::Tensor no_routed_experts(const Pass& pass, const TransformerConfig& config,
                             const at::Device& device) {
  const Microbatch& microbatch = pass.microbatch;
  const std::int64_t tokens =
      microbatch.packed ? microbatch.packed->cu_seqlens.back() : microbatch.at("tokens").numel();
  return at::zeros({config.num_layers, tokens, config.moe.router_topk},
                   at::TensorOptions(device).dtype(at::kInt));
}

at::Tensor experts_by_token(const at::Tensor& routed_experts, const TransformerConfig& config) {
  std::vector<at::Tensor> layers;
  for (std::int64_t i = 0; i < config.num_layers; ++i)
    if (config.kind(i).has_experts()) layers.push_back(routed_experts[i]);
  return at::stack(layers, 1).to(c10::kCPU);
}

void advance_caches(const Pass& pass) {
  if (pass.caches == nullptr) return;
  const std::vector<std::int64_t> lengths = lengths_of(pass.microbatch);
  for (std::size_t i = 0; i < lengths.size(); ++i) (*pass.caches)[i]->length += lengths[i];
  if (pass.encoder == nullptr) return;
  const std::vector<std::int64_t> encoded = lengths_of(*pass.encoder);
  auto next = encoded.begin();
  for (SequenceCache* cache : *pass.caches)
    if (cache->num_encoded == 0) cache->num_encoded = *next++;
}

}  // namespace megatron
