// s positions, b samples, h hidden channels, T tokens of this rank.
#include "megatron/nn/moe/moe_layer.h"

#include <ATen/TensorOperators.h>

#include <numeric>

#include "megatron/config/transformer_config.h"
#include "megatron/nn/linear.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/tensor_parallel_mappings.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

/// Returns the width of the rows that the experts of a layer take.
std::int64_t expert_width(const TransformerConfig& config) {
  return config.moe.latent_size > 0 ? config.moe.latent_size : config.hidden_size;
}

/// Returns the declaration of a weight that every rank of tp holds whole.
ParameterSpec projection_spec(const Shape& shape, const Init& init, const Rank& rank) {
  return {.sharding = Sharding::replicated(shape, /*sums_gradients=*/rank.tp.size > 1),
          .init = init,
          .tags = {}};
}

/// Returns whether the ranks of tp hold the same rows. Then each routes a slice of them.
bool splits_rows(const ForwardContext& context, const Rank& rank) {
  return rank.tp.size > 1 && !context.sequence_parallel;
}

/// Returns the tokens that this rank routes.
RoutingSpan routing_span(const at::Tensor& input_sbh, const ForwardContext& context,
                         const Rank& rank) {
  const Axis &tp = rank.tp, &cp = context.cp != nullptr ? *context.cp : rank.cp;
  const bool splits = splits_rows(context, rank);
  const auto slices = [&](std::int64_t rows) {
    return splits ? sequence_slices(rows, tp)
                  : std::vector<std::int64_t>(static_cast<std::size_t>(tp.size), rows);
  };
  const std::vector<std::int64_t> positions = slices(input_sbh.size(0));
  const std::int64_t own = positions[static_cast<std::size_t>(tp.rank)];
  const auto first = std::accumulate(positions.begin(), positions.begin() + (splits ? tp.rank : 0),
                                     std::int64_t{0});
  RoutingSpan span{.batch = input_sbh.size(1),
                   .num_positions = own,
                   .tokens_of_ranks = {},
                   .place = cp.rank * tp.size + tp.rank,
                   .positions = context.row_positions.slice(first, own),
                   .placement = context.placement.get(),
                   .lengths = context.lengths};
  if (span.positions.padding.defined()) span.padding = span.positions.padding.reshape({-1, 1});
  // Only with caches do the ranks of cp hold different numbers of rows.
  for (std::int64_t cp_rank = 0; cp_rank < cp.size; ++cp_rank) {
    const std::int64_t rows =
        context.caches != nullptr ? span.placement->rows_of(cp_rank) : input_sbh.size(0);
    for (const std::int64_t count : slices(rows))
      span.tokens_of_ranks.push_back(count * span.batch);
  }
  const TokenSamples samples = span.samples();
  for (std::int64_t i = std::ssize(span.lengths); i < samples.count; ++i)
    span.lengths.push_back(samples.of_token.defined()
                               ? rows_of_sequence(*span.placement, i).count
                               : span.first_token_of(std::ssize(span.tokens_of_ranks)) /
                                     samples.count);
  return span;
}

}  // namespace

MoeLayer::MoeLayer(Module* parent, std::string_view name, const LayerArguments& arguments)
    : Sublayer(parent, name, {.norm = LayerNode::mlp_norm, .block = LayerNode::moe}),
      config_(arguments.config),
      rank_(arguments.rank),
      index_(arguments.layer_index),
      router_(this, arguments),
      experts_(this, arguments, expert_width(config_)),
      dispatcher_(config_.moe, rank_) {
  if (arguments.has_input_norm)
    pre_mlp_layernorm_.emplace(parent, "pre_mlp_layernorm", config_, config_.hidden_size, rank_);
  if (const std::int64_t latent = config_.moe.latent_size; latent > 0) {
    const Shape down{latent, config_.hidden_size}, up{config_.hidden_size, latent};
    fc1_latent_proj_.emplace(this, "fc1_latent_proj",
                             projection_spec(down, input_init(config_, down), rank_), rank_.tp);
    fc2_latent_proj_.emplace(this, "fc2_latent_proj",
                             projection_spec(up, residual_init(config_, up), rank_), rank_.tp);
  }
  if (config_.moe.shared_expert_intermediate_size > 0) shared_experts_.emplace(this, arguments);
}

void MoeLayer::place_experts(const ExpertOrder& order) {
  experts_.set_order(order);
  dispatcher_.place_experts(order);
}

NormWeights MoeLayer::input_norm() const {
  return pre_mlp_layernorm_ ? pre_mlp_layernorm_->weights()
                            : NormWeights{.options = norm_options(config_)};
}

at::Tensor MoeLayer::forward(const at::Tensor& input_sbh, const ForwardContext& context) {
  const bool splits = splits_rows(context, rank_);
  const at::Tensor own_sbh =
      splits ? scatter_replicated_sequence(input_sbh, rank_.tp, "tokens") : input_sbh;
  const RoutingSpan span = routing_span(input_sbh, context, rank_);
  const at::Tensor x = own_sbh.reshape({-1, config_.hidden_size});
  const RoutedTokens routed = router_.forward(x, span, context);
  if (context.routed_experts.defined()) {
    const at::Tensor all = context.routed_experts[index_],
                     chosen = routed.experts.maximum(-1 - routed.experts);
    if (span.is_reordered())
      all.index_copy_(0, span.positions_of_rank(), chosen);
    else
      all.narrow(0, span.first_token(), span.num_tokens()).copy_(chosen);
  }
  const auto compute_shared = [&] {
    if (!shared_experts_) return at::Tensor();
    return run_node(context, LayerNode::shared_experts, input_sbh,
                    [this](const at::Tensor& x, const ForwardContext& own) {
                      return shared_experts_->forward(x, own);
                    });
  };
  const bool overlaps = config_.moe.shared_expert_overlap;
  at::Tensor shared = overlaps ? at::Tensor() : compute_shared();
  TokenDispatcher::Pending dispatch = dispatcher_.start_dispatch(
      fc1_latent_proj_ ? linear(x, fc1_latent_proj_->parameter, nullptr) : x, routed, span.total());
  if (overlaps) shared = compute_shared();
  DispatchedTokens tokens = dispatcher_.finish_dispatch(std::move(dispatch));
  if (config_.moe.apply_probs_on_input) {
    tokens.rows = differentiable_by_autograd(
        {.name = "ScaleRowsBackward"}, {tokens.rows, tokens.probs}, [](const Tensors& x) {
          return (x[0].to(x[1].scalar_type()) * x[1].unsqueeze(1)).to(x[0].scalar_type());
        });
    tokens.probs = at::Tensor();
  } else {
    tokens.probs = tokens.probs.to(compute_type(x.scalar_type()));
  }
  const at::Tensor results = experts_.forward(tokens, context);
  at::Tensor y = dispatcher_.finish_combine(dispatcher_.start_combine(results, tokens));
  if (fc2_latent_proj_) y = linear(y, fc2_latent_proj_->parameter, nullptr);
  y = y.view(own_sbh.sizes());
  if (splits) y = gather_replicated_sequence(y, input_sbh.size(0), rank_.tp, "tokens");
  observe(context, experts_, "", y);
  return shared.defined() ? y + shared : y;
}

}  // namespace megatron
