// s positions, b samples. A Sharding of the input projection has one block for each part.
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

using Part = RecurrentPart;

bool is_convolved(Part part) {
  return part == Part::query || part == Part::key || part == Part::value;
}

/// Returns the rows of a part of the input projection of all ranks.
ShardBlock block_of(Part part, const RecurrentSizes& sizes) {
  if (part == Part::query || part == Part::key)
    return {sizes.key_channels(), /*splittable=*/false, sizes.groups};
  return {part == Part::head_gate ? sizes.heads : sizes.value_channels()};
}

std::vector<ShardBlock> blocks_of(const RecurrentLayout& layout, const RecurrentSizes& sizes,
                                  bool only_convolved) {
  std::vector<ShardBlock> blocks;
  for (const Part part : layout.parts)
    if (!only_convolved || is_convolved(part)) blocks.push_back(block_of(part, sizes));
  return blocks;
}

RecurrentSizes sizes_of_rank(const LayerArguments& arguments, MixerKind kind) {
  RecurrentSizes sizes = arguments.config.recurrent_sizes(kind);
  sizes.groups = std::max<std::int64_t>(1, sizes.groups / arguments.rank.tp.size);
  sizes.heads /= arguments.rank.tp.size;
  return sizes;
}

std::vector<std::int64_t> columns_of(const RecurrentLayout& layout, const RecurrentSizes& sizes) {
  std::vector<std::int64_t> columns;
  for (const ShardBlock& block : blocks_of(layout, sizes, /*only_convolved=*/false))
    columns.push_back(block.size);
  return columns;
}

ColumnParallelLinear::Options in_options(const LayerArguments& arguments,
                                         const RecurrentLayout& layout) {
  const RecurrentSizes sizes = arguments.config.recurrent_sizes(layout.kind);
  return {.in = arguments.config.hidden_size,
          .out = sizes.in_proj_rows(),
          .blocks = blocks_of(layout, sizes, /*only_convolved=*/false),
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
  return {.sharding = Sharding::split(std::move(shape), 0,
                                      blocks_of(layout, sizes, /*only_convolved=*/true)),
          .init = Init::uniform(1 / std::sqrt(static_cast<double>(sizes.taps))),
          .tags = {.no_decay = is_bias}};
}

ParameterSpec head_spec(const LayerArguments& arguments, MixerKind kind, const Init& init) {
  return {.sharding = Sharding::split({arguments.config.recurrent_sizes(kind).heads}, 0),
          .init = init,
          .tags = {.no_decay = true, .precise = true}};
}

/// Returns the sequences of a pass, or what this pass has of them, as pieces.
RowPieces sequences_of(const ForwardContext& context) {
  MEGATRON_CHECK(context.cp->size == 1, "a state of sequences that ranks of cp share");
  RowPieces pieces;
  for (const SequencePiece& piece :
       pieces_of(context.placement->runs_of.at(0), *context.placement)) {
    const std::int64_t before =
        context.caches == nullptr
            ? 0
            : (*context.caches)[static_cast<std::size_t>(piece.sequence)]->length;
    pieces.push_back({.row = piece.row,
                      .count = piece.positions.count,
                      .position = before + piece.positions.first});
  }
  return pieces;
}

/// Returns the rows that belong together: each sequence, and each document in it.
RowPieces pieces_of_pass(const ForwardContext& context) {
  RowPieces documents;
  if (context.document_ids.defined()) documents = document_pieces(context.document_ids.cpu());
  if (context.placement == nullptr) return documents;
  const RowPieces sequences = sequences_of(context);
  if (documents.empty()) return sequences;
  RowPieces both;
  for (const RowPiece& sequence : sequences) {
    for (const RowPiece& document : documents) {
      const std::int64_t first = std::max(sequence.row, document.row),
                         end =
                             std::min(sequence.row + sequence.count, document.row + document.count);
      if (first < end) both.push_back({.row = first, .count = end - first});
    }
  }
  return both;
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
      config_(arguments.config),
      a_log_(declare("A_log", head_spec(arguments, layout.kind, Init::log_of_uniform(16)),
                     arguments.rank.tp)),
      dt_bias_(
          declare("dt_bias", head_spec(arguments, layout.kind, layout.dt_bias), arguments.rank.tp)),
      layout_(std::move(layout)),
      sizes_(sizes_of_rank(arguments, layout_.kind)),
      columns_(columns_of(layout_, sizes_)),
      tp_(arguments.rank.tp),
      in_proj_(this, "in_proj", config_, arguments.rank, in_options(arguments, layout_)),
      conv_weight_(this, "conv1d", conv_spec(arguments, layout_, /*is_bias=*/false), tp_),
      norm_(this, layout_.norm, layout_.norm_weight, tp_),
      out_proj_(this, "out_proj", config_, arguments.rank,
                config_.recurrent_sizes(layout_.kind).value_channels(), config_.hidden_size,
                LayerNode::attn_proj, /*may_have_bias=*/false) {
  if (layout_.has_conv_bias)
    conv_bias_.emplace(this, "conv1d", conv_spec(arguments, layout_, /*is_bias=*/true), tp_,
                       "bias");
}

at::Tensor RecurrentMixer::normalized(const at::Tensor& out, const at::Tensor& gate) const {
  const at::Tensor weight = tracked_copy(norm_.parameter);
  const std::int64_t width = weight.size(0);  // a head, or all channels of this rank
  const at::Tensor x = out.flatten(2).unflatten(-1, {-1, width}),
                   z = gate.unflatten(-1, {-1, width});
  const at::Tensor y = layout_.norm_options.group_size > width
                           ? norm_over_ranks(x, z, weight, layout_.norm_options, tp_)
                           : gated_norm(x, z, weight, layout_.norm_options);
  return y.flatten(2);
}

Tensors RecurrentMixer::kept_states(const RowPieces& pieces, const ForwardContext& context) const {
  if (context.caches == nullptr) return {{}, {}};
  const at::TensorOptions type(conv_weight_.parameter.value().options());
  Tensors inputs, states;
  for (const SequencePiece& piece :
       pieces_of(context.placement->runs_of.at(0), *context.placement)) {
    SequenceCache& sequence = *(*context.caches)[static_cast<std::size_t>(piece.sequence)];
    RecurrentCache& cache = sequence.of_layer<RecurrentCache>(path());
    if (sequence.length == 0) cache = {};
    MEGATRON_CHECK(cache.state.defined() == (sequence.length > 0), path(), " has no state of ",
                   sequence.length, " tokens");
    inputs.push_back(cache.state.defined()
                         ? cache.convolution
                         : at::zeros({sizes_.conv_channels(), sizes_.taps - 1}, type));
    states.push_back(cache.state.defined()
                         ? cache.state
                         : at::zeros({sizes_.heads, sizes_.key_dim, sizes_.value_dim},
                                     type.dtype(compute_type(type.dtype().toScalarType()))));
  }
  MEGATRON_CHECK(inputs.size() == pieces.size(), "documents in generation");
  return {at::stack(inputs), at::stack(states)};
}

void RecurrentMixer::keep_states(const Tensors& states, const RowPieces& pieces,
                                 const ForwardContext& context) const {
  if (context.caches == nullptr) return;
  const std::vector<SequencePiece> sequences =
      pieces_of(context.placement->runs_of.at(0), *context.placement);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    auto& cache = (*context.caches)[static_cast<std::size_t>(sequences[i].sequence)]
                      ->of_layer<RecurrentCache>(path());
    cache.convolution = states[0][static_cast<std::int64_t>(i)].clone();
    cache.state = states[1][static_cast<std::int64_t>(i)].clone();
  }
}

at::Tensor RecurrentMixer::recur(const at::Tensor& columns, const ForwardContext& context) const {
  // What is neighbouring in the projection and read together: the convolution's, and the gates.
  std::vector<std::int64_t> widths;
  std::size_t convolved = 0, output_gate = 0, head_gates = 0;
  for (std::size_t i = 0; i < layout_.parts.size(); ++i) {
    const Part part = layout_.parts[i], before = i > 0 ? layout_.parts[i - 1] : part;
    const bool continues =
        i > 0 && (part == before || (is_convolved(part) && is_convolved(before)));
    if (!continues) widths.push_back(0);
    widths.back() += columns_[i];
    (is_convolved(part)          ? convolved
     : part == Part::output_gate ? output_gate
                                 : head_gates) = widths.size() - 1;
  }
  const Tensors runs = columns.split_with_sizes(widths, -1);
  const RowPieces pieces = pieces_of_pass(context);
  const bool keeps = context.caches != nullptr;
  const Tensors before = kept_states(pieces, context);
  const CausalConvResult convolution =
      causal_conv(runs[convolved], tracked_copy(conv_weight_.parameter).squeeze(1),
                  conv_bias_ ? tracked_copy(conv_bias_->parameter) : at::Tensor(),
                  {.pieces = pieces, .initial_states = before[0], .wants_final_states = keeps});
  widths.clear();
  for (std::size_t i = 0; i < layout_.parts.size(); ++i)
    if (is_convolved(layout_.parts[i])) widths.push_back(columns_[i]);
  const Tensors parts = convolution.out.split_with_sizes(widths, -1);
  LinearAttentionInputs inputs;
  auto part = parts.begin();
  for (const Part which : layout_.parts) {
    if (!is_convolved(which)) continue;
    at::Tensor& input = which == Part::query ? inputs.q : which == Part::key ? inputs.k : inputs.v;
    input = (part++)->unflatten(-1, {which == Part::value ? sizes_.heads : sizes_.groups, -1});
  }
  const Tensors head_gates_sbn = gates(runs[head_gates]).unbind(0);
  inputs.g = head_gates_sbn[0];
  inputs.beta = head_gates_sbn[1];
  const LinearAttentionResult result = linear_attention(inputs, {.rule = layout_.rule,
                                                                 .pieces = pieces,
                                                                 .initial_states = before[1],
                                                                 .wants_final_states = keeps});
  keep_states({convolution.final_states, result.final_states}, pieces, context);
  return normalized(with_skip(result.out, inputs.v), runs[output_gate]);
}

at::Tensor RecurrentMixer::forward(const at::Tensor& input_sbh, const ForwardContext& context) {
  const at::Tensor columns = in_proj_.forward(input_sbh, context);
  const at::Tensor out = run_node(context, {*this, "recurrence", LayerNode::core_attn},
                                  [&] { return recur(columns, context); });
  return out_proj_.forward(out, context);
}

}  // namespace megatron
