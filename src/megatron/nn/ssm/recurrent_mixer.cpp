// s positions, b samples.
#include "megatron/nn/ssm/recurrent_mixer.h"

#include <ATen/TensorOperators.h>
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
  MEGATRON_CHECK(context.cp->size == 1, "states of sequences that ranks of cp share");
  return pieces_of(context.placement->runs_of.front(), *context.placement);
}

/// Returns the cache of a sequence of a pass of generation.
SequenceCache& cache_of(const SequencePiece& sequence, const ForwardContext& context) {
  return *context.caches->at(static_cast<std::size_t>(sequence.sequence));
}

/// Returns the rows that belong together: each sequence, and each document in it.
RowPieces pieces_of_pass(const ForwardContext& context) {
  const RowPieces& documents = context.documents;
  if (context.placement == nullptr) return documents;
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

at::Tensor RecurrentMixer::normalized(const at::Tensor& out, const at::Tensor& gate) const {
  const at::Tensor weight = tracked_copy(norm_.parameter);
  const std::int64_t width = weight.size(0);  // a head, or all channels of this rank
  const at::Tensor x = out.flatten(2).unflatten(-1, {-1, width}),
                   z = gate.unflatten(-1, {-1, width});
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

at::Tensor RecurrentMixer::recur(const at::Tensor& columns, const ForwardContext& context) const {
  const bool keeps = context.caches != nullptr, is_mamba = layout_.is_mamba();
  const std::int64_t keys = sizes_.key_channels(), values = sizes_.value_channels(),
                     convolved = sizes_.conv_channels(), gated = sizes_.gates * sizes_.heads;
  const Tensors runs = is_mamba ? columns.split_with_sizes({values, convolved, gated}, -1)
                                : columns.split_with_sizes({convolved, values, gated}, -1);
  const RowPieces pieces = pieces_of_pass(context);
  const Tensors before = keeps ? kept_states(context, columns.options()) : Tensors(2);
  const CausalConvResult convolution =
      causal_conv(runs[is_mamba ? 1 : 0], tracked_copy(conv_weight_.parameter).squeeze(1),
                  conv_bias_ ? tracked_copy(conv_bias_->parameter) : at::Tensor(),
                  {.pieces = pieces, .initial_states = before[0], .wants_final_states = keeps});
  const Tensors parts = is_mamba ? convolution.out.split_with_sizes({values, keys, keys}, -1)
                                 : convolution.out.split_with_sizes({keys, keys, values}, -1);
  const auto of = [](const at::Tensor& x, std::int64_t count) {
    return x.unflatten(-1, {count, -1});
  };
  const Tensors gates_sbn = gates(runs[2]).unbind(0);
  const LinearAttentionInputs inputs{.q = of(parts[is_mamba ? 2 : 0], sizes_.groups),
                                     .k = of(parts[1], sizes_.groups),
                                     .v = of(parts[is_mamba ? 0 : 2], sizes_.heads),
                                     .g = gates_sbn[0],
                                     .beta = gates_sbn[1]};
  const LinearAttentionResult result = linear_attention(inputs, {.rule = layout_.rule,
                                                                 .pieces = pieces,
                                                                 .initial_states = before[1],
                                                                 .wants_final_states = keeps});
  if (keeps) keep_states({convolution.final_states, result.final_states}, context);
  return normalized(with_skip(result.out, inputs.v), runs[is_mamba ? 0 : 1]);
}

at::Tensor RecurrentMixer::forward(const at::Tensor& input_sbh, const ForwardContext& context) {
  const at::Tensor columns = in_proj_.forward(input_sbh, context);
  const at::Tensor out = run_node(context, {*this, "recurrence", LayerNode::core_attn},
                                  [&] { return recur(columns, context); });
  return out_proj_.forward(out, context);
}

}  // namespace megatron
