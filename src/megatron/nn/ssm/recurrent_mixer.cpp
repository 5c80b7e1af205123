// s positions, b samples.
#include "megatron/nn/ssm/recurrent_mixer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/ops/causal_conv.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/head_exchange.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

/// Returns the blocks of what passes the convolution.
std::vector<ShardBlock> convolved_blocks(const RecurrentLayout& layout,
                                         const RecurrentSizes& sizes) {
  const ShardBlock keys{sizes.key_channels(), /*splittable=*/false, sizes.groups},
      values{sizes.value_channels()};
  if (layout.is_mamba()) return {values, keys, keys};
  return {keys, keys, values};
}

ColumnParallelLinear::Options in_options(const LayerArguments& arguments,
                                         const RecurrentLayout& layout) {
  const RecurrentSizes sizes = arguments.config.recurrent_sizes(layout.kind);
  std::vector<ShardBlock> blocks = convolved_blocks(layout, sizes);
  blocks.insert(layout.is_mamba() ? blocks.begin() : blocks.end(), {sizes.value_channels()});
  blocks.insert(blocks.end(), static_cast<std::size_t>(sizes.gates), {sizes.heads});
  return {.in = arguments.config.hidden_size,
          .out = sizes.in_proj_rows(),
          .blocks = std::move(blocks),
          .bias = false,
          .with_norm = arguments.has_input_norm,
          .node = LayerNode::qkv_linear};
}

/// Returns the declaration of weights or biases of the convolution, with the initial values of
/// PyTorch's Conv1d.
ParameterSpec conv_spec(const LayerArguments& arguments, const RecurrentLayout& layout,
                        bool is_bias) {
  const RecurrentSizes sizes = arguments.config.recurrent_sizes(layout.kind);
  Shape shape{sizes.conv_channels()};
  if (!is_bias) shape.insert(shape.end(), {1, sizes.taps});
  return {.sharding = Sharding::split(std::move(shape), 0, convolved_blocks(layout, sizes)),
          .init = Init::uniform(1 / std::sqrt(static_cast<double>(sizes.taps))),
          .tags = {.no_decay = is_bias}};
}

ParameterSpec head_spec(const LayerArguments& arguments, MixerKind kind, const Init& init) {
  return {.sharding = Sharding::split({arguments.config.recurrent_sizes(kind).heads}, 0),
          .init = init,
          .tags = {.no_decay = true, .precise = true}};
}

/// Returns the sequences of a pass.
std::vector<SequencePiece> sequences_of(const ForwardContext& context) {
  return pieces_of({{0, context.placement->length}}, *context.placement);
}

/// Returns the cache of a sequence of a pass of generation.
SequenceCache& cache_of(const SequencePiece& sequence, const ForwardContext& context) {
  return *context.caches->at(static_cast<std::size_t>(sequence.sequence));
}

/// Returns the rows that belong together: each sequence, and each document in it.
RowPieces pieces_of_pass(const ForwardContext& context) {
  const RowPieces& documents = context.documents;
  const SequencePlacement* placement = context.placement.get();
  if (placement == nullptr || (!placement->is_packed() && context.caches == nullptr))
    return documents;
  RowPieces pieces;
  for (const SequencePiece& sequence : sequences_of(context)) {
    const std::int64_t begin = sequence.row, end = begin + sequence.positions.count;
    if (documents.empty())
      pieces.push_back(
          {.row = begin,
           .count = end - begin,
           .position = context.caches == nullptr ? 0 : cache_of(sequence, context).length});
    for (const RowPiece& document : documents) {
      const std::int64_t first = std::max(begin, document.row),
                         last = std::min(end, document.row + document.count);
      if (first < last) pieces.push_back({.row = first, .count = last - first});
    }
  }
  return pieces;
}

/// gated_norm() without norm_before_gate in groups of channels that several ranks share, of which
/// each has `x.size(-1)` channels. With h = x·silu(z), n = h·rstd and g = dy·w, backward is
/// dh = rstd·(g − n·mean(g·n)).
at::Tensor norm_over_ranks(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                           const GatedNormOptions& options, const Axis& tp) {
  const std::int64_t ranks = options.group_size / x.size(-1);
  const auto mean_of_group = [axis = tp, ranks, options](const at::Tensor& products) {
    std::vector<std::int64_t> shape = products.sizes().vec();
    shape.back() = axis.size / ranks;
    const at::Tensor sums = at::zeros(shape, products.options());
    const at::Tensor mine = sums.narrow(-1, axis.rank / ranks, 1);
    mine.copy_(products.sum(-1, /*keepdim=*/true));
    all_reduce_(axis, sums, "gated norm");
    return mine.div(options.group_size);
  };
  const auto wide = [type = weight.scalar_type()](const at::Tensor& t) { return t.to(type); };
  Recording recording({.name = "GatedNormBackward"}, {x, z, weight});
  const at::Tensor h = wide(x) * at::silu(wide(z));
  const at::Tensor scale = mean_of_group(h.square()).add_(options.epsilon).rsqrt_();
  return recording.finish(
      (h * scale * weight).to(x.scalar_type()), {x, z, weight, scale},
      [mean_of_group, wide, type = x.scalar_type()](BackwardPass& pass) -> Tensors {
        const at::Tensor own_x = wide(pass.saved[0]), own_z = wide(pass.saved[1]),
                         dy = wide(pass.gradients[0]), rstd = pass.saved[3];
        const at::Tensor gate = at::silu(own_z);
        const at::Tensor n = own_x * gate * rstd, g = dy * pass.saved[2];
        const at::Tensor dh = rstd * (g - n * mean_of_group(g * n));
        return {(dh * gate).to(type), at::silu_backward(dh * own_x, own_z).to(type),
                (dy * n).flatten(0, -2).sum(0)};
      });
}

}  // namespace

at::Tensor HeadShare::of(const at::Tensor& x, std::int64_t dim, std::int64_t units) const {
  if (is_all()) return x;
  const std::int64_t count = std::max<std::int64_t>(1, units / ranks);
  return x.unflatten(dim, {units, -1})
      .narrow(dim, rank * units / ranks, count)
      .flatten(dim, dim + 1);
}

RecurrentMixer::RecurrentMixer(Module* parent, std::string_view name,
                               const LayerArguments& arguments, RecurrentLayout layout)
    : Sublayer(parent, name, {.norm = LayerNode::attn_norm}),
      a_log_(declare("A_log", head_spec(arguments, layout.kind, Init::log_of_uniform(16)),
                     arguments.rank.tp)),
      dt_bias_(
          declare("dt_bias", head_spec(arguments, layout.kind, layout.dt_bias), arguments.rank.tp)),
      layout_(std::move(layout)),
      sizes_(arguments.config.recurrent_sizes(layout_.kind).of_rank(arguments.rank.tp.size)),
      tp_(arguments.rank.tp),
      in_proj_(this, "in_proj", arguments.config, arguments.rank, in_options(arguments, layout_)),
      conv_weight_(this, "conv1d", conv_spec(arguments, layout_, /*is_bias=*/false), tp_),
      norm_(this, layout_.norm, layout_.norm_weight, tp_),
      out_proj_(this, "out_proj", arguments.config, arguments.rank,
                arguments.config.recurrent_sizes(layout_.kind).value_channels(),
                arguments.config.hidden_size, LayerNode::attn_proj, /*may_have_bias=*/false) {
  if (layout_.is_mamba())
    conv_bias_.emplace(this, "conv1d", conv_spec(arguments, layout_, /*is_bias=*/true), tp_,
                       "bias");
}

at::Tensor RecurrentMixer::of_heads(Parameter& parameter, const HeadShare& share) const {
  return share.of(tracked_copy(parameter), 0, sizes_.heads);
}

at::Tensor RecurrentMixer::normalized(const at::Tensor& out, const at::Tensor& gate) const {
  const at::Tensor weight = tracked_copy(norm_.parameter);
  const std::int64_t width = weight.size(0);  // a head, or all channels of this rank
  const at::Tensor x = out.unflatten(-1, {-1, width}), z = gate.unflatten(-1, {-1, width});
  const GatedNormOptions& options = layout_.norm_options;
  return (options.group_size > width ? norm_over_ranks(x, z, weight, options, tp_)
                                     : gated_norm(x, z, weight, options))
      .flatten(2);
}

Tensors RecurrentMixer::kept_states(const ForwardContext& context,
                                    const at::TensorOptions& type) const {
  Tensors inputs, states;
  for (const SequencePiece& sequence : sequences_of(context)) {
    SequenceCache& all = cache_of(sequence, context);
    auto& cache = all.of_layer<RecurrentCache>(path());
    if (all.length == 0) cache = RecurrentCache();
    MEGATRON_CHECK(cache.length == all.length, path(), " has the state of ", cache.length,
                   " tokens of ", all.length);
    const bool is_new = !cache.state.defined();
    inputs.push_back(is_new ? at::zeros({sizes_.conv_channels(), sizes_.taps - 1}, type)
                            : cache.convolution);
    states.push_back(is_new ? at::zeros({sizes_.heads, sizes_.key_dim, sizes_.value_dim},
                                        type.dtype(compute_type(type.dtype().toScalarType())))
                            : cache.state);
  }
  return {at::stack(inputs), at::stack(states)};
}

void RecurrentMixer::keep_states(const Tensors& states, const ForwardContext& context) const {
  std::int64_t index = 0;
  for (const SequencePiece& sequence : sequences_of(context)) {
    auto& cache = cache_of(sequence, context).of_layer<RecurrentCache>(path());
    cache.convolution = states[0][index].clone();
    cache.state = states[1][index++].clone();
    cache.length += sequence.positions.count;
  }
}

std::vector<std::int64_t> RecurrentMixer::convolved_units(const RecurrentSizes& sizes) const {
  if (layout_.is_mamba()) return {sizes.heads, sizes.groups, sizes.groups};
  return {sizes.groups, sizes.groups, sizes.heads};
}

Tensors RecurrentMixer::convolved_parts(const at::Tensor& x, std::int64_t dim,
                                        const RecurrentSizes& sizes) const {
  const std::int64_t keys = sizes.key_channels(), values = sizes.value_channels();
  return layout_.is_mamba() ? x.split_with_sizes({values, keys, keys}, dim)
                            : x.split_with_sizes({keys, keys, values}, dim);
}

at::Tensor RecurrentMixer::of_convolved(const at::Tensor& parameter, const HeadShare& share) const {
  if (share.is_all()) return parameter;
  Tensors parts = convolved_parts(parameter, 0, sizes_);
  const std::vector<std::int64_t> units = convolved_units(sizes_);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = share.of(parts[i], 0, units[i]);
  return at::cat(parts);
}

at::Tensor RecurrentMixer::run_sequences(const Columns& columns, const HeadShare& share,
                                         const ForwardContext& context) const {
  const bool keeps = context.caches != nullptr, is_mamba = layout_.is_mamba();
  const RecurrentSizes& sizes = share.sizes;
  const RowPieces pieces = pieces_of_pass(context);
  const Tensors before = keeps ? kept_states(context, columns.convolved.options()) : Tensors(2);
  const CausalConvResult convolution = causal_conv(
      columns.convolved, of_convolved(tracked_copy(conv_weight_.parameter).squeeze(1), share),
      conv_bias_ ? of_convolved(tracked_copy(conv_bias_->parameter), share) : at::Tensor(),
      {.pieces = pieces, .initial_states = before[0], .wants_final_states = keeps});
  const Tensors parts = convolved_parts(convolution.out, -1, sizes);
  const auto of = [](const at::Tensor& x, std::int64_t count) {
    return x.unflatten(-1, {count, -1});
  };
  const Tensors gates_sbn = gates(columns.gated, share).unbind(0);
  const LinearAttentionInputs inputs{.q = of(parts[is_mamba ? 2 : 0], sizes.groups),
                                     .k = of(parts[1], sizes.groups),
                                     .v = of(parts[is_mamba ? 0 : 2], sizes.heads),
                                     .g = gates_sbn[0],
                                     .beta = gates_sbn[1]};
  const LinearAttentionResult result = linear_attention(inputs, {.rule = layout_.rule,
                                                                 .pieces = pieces,
                                                                 .initial_states = before[1],
                                                                 .wants_final_states = keeps});
  if (keeps) keep_states({convolution.final_states, result.final_states}, context);
  return with_skip(result.out, inputs.v, share).flatten(2);
}

at::Tensor RecurrentMixer::run_divided(const Columns& columns,
                                       const ForwardContext& context) const {
  MEGATRON_CHECK(context.caches == nullptr, "states of sequences that ranks of cp share");
  const Axis& cp = *context.cp;
  const SequencePlacement& placement = *context.placement;
  const std::int64_t rows = columns.convolved.size(0), samples = columns.convolved.size(1);
  const HeadShare share{.rank = cp.rank, .ranks = cp.size, .sizes = sizes_.of_rank(cp.size)};
  Tensors parts = convolved_parts(columns.convolved, -1, sizes_);
  std::vector<std::int64_t> units = convolved_units(sizes_);
  for (const at::Tensor& gate : columns.gated.chunk(sizes_.gates, -1)) {
    parts.push_back(gate);
    units.push_back(sizes_.heads);
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {  // [s, b, ranks, channels of a share]
    at::Tensor& part = parts[i];
    if (units[i] < cp.size)  // ranks that share a group each get a copy of it
      part = part.unflatten(-1, {units[i], -1}).repeat_interleave(cp.size / units[i], 2);
    part = part.reshape({rows, samples, cp.size, -1});
  }
  const HeadExchange exchange(cp, rows);
  const at::Tensor whole = reordered_rows(
      exchange.to_heads(at::cat(parts, -1), "recurrent inputs").squeeze(2), placement.row_of);
  const Tensors own = whole.split_with_sizes(
      {share.sizes.conv_channels(), share.sizes.gates * share.sizes.heads}, -1);
  const at::Tensor out = run_sequences({.convolved = own[0], .gated = own[1]}, share, context);
  return exchange.to_rows(reordered_rows(out, placement.order), "recurrent outputs");
}

at::Tensor RecurrentMixer::recur(const at::Tensor& columns, const ForwardContext& context) const {
  const bool is_mamba = layout_.is_mamba();
  const std::int64_t values = sizes_.value_channels(), convolved = sizes_.conv_channels(),
                     gated = sizes_.gates * sizes_.heads;
  const Tensors runs = is_mamba ? columns.split_with_sizes({values, convolved, gated}, -1)
                                : columns.split_with_sizes({convolved, values, gated}, -1);
  const Columns inputs{.convolved = runs[is_mamba ? 1 : 0], .gated = runs[2]};
  const bool is_divided = context.placement != nullptr && context.cp->size > 1;
  return normalized(
      is_divided ? run_divided(inputs, context) : run_sequences(inputs, {.sizes = sizes_}, context),
      runs[is_mamba ? 0 : 1]);
}

at::Tensor RecurrentMixer::forward(const at::Tensor& input_sbh, const ForwardContext& context) {
  const at::Tensor columns = in_proj_.forward(input_sbh, context);
  const at::Tensor out = run_node(context, {*this, "recurrence", LayerNode::core_attn},
                                  [&] { return recur(columns, context); });
  return out_proj_.forward(out, context);
}

}  // namespace megatron
