// s positions, b samples, h hidden channels, T tokens of this rank.
#include "megatron/nn/moe/moe_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sigmoid.h>

#include "megatron/nn/linear.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/parallel/collectives.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

/// Returns the positions of each rank of `axis`, when they are split as evenly as possible.
std::vector<std::int64_t> split_positions(std::int64_t positions, const Axis& axis) {
  std::vector<std::int64_t> parts;
  for (std::int64_t rank = 0; rank < axis.size; ++rank)
    parts.push_back(positions / axis.size + (rank < positions % axis.size ? 1 : 0));
  return parts;
}

std::int64_t sum_before(const std::vector<std::int64_t>& parts, std::int64_t rank) {
  std::int64_t sum = 0;
  for (std::int64_t i = 0; i < rank; ++i) sum += parts[static_cast<std::size_t>(i)];
  return sum;
}

/// A microbatch's positions as the ranks of tp divide them, when all of them hold all positions.
struct SplitPositions {
  const Axis& axis;
  std::vector<std::int64_t> parts;

  at::Tensor own(const at::Tensor& x) const {
    return x.narrow(0, sum_before(parts, axis.rank), parts[static_cast<std::size_t>(axis.rank)])
        .contiguous();
  }
  at::Tensor all(const at::Tensor& x) const { return all_gather(axis, x, parts, "tokens"); }
};

/// Returns this rank's positions of x, which is equal on all ranks. Backward all-gathers.
at::Tensor own_positions(const at::Tensor& x, const SplitPositions& split) {
  const auto forward = [&] {
    return Recorded{
        .outputs = {split.own(x)},
        .saved = {},
        .backward = [axis = split.axis, parts = split.parts](BackwardPass& pass) -> Tensors {
          return {SplitPositions{axis, parts}.all(pass.gradients[0])};
        }};
  };
  return differentiable({.name = "OwnPositionsBackward"}, {x}, forward).front();
}

/// Returns all ranks' positions. Backward returns this rank's part of the gradient, which is equal
/// on all ranks.
at::Tensor all_positions(const at::Tensor& x, const SplitPositions& split) {
  const auto forward = [&] {
    return Recorded{
        .outputs = {split.all(x)},
        .saved = {},
        .backward = [axis = split.axis, parts = split.parts](BackwardPass& pass) -> Tensors {
          return {SplitPositions{axis, parts}.own(pass.gradients[0])};
        }};
  };
  return differentiable({.name = "AllPositionsBackward"}, {x}, forward).front();
}

ParameterSpec projection_spec(const Shape& shape, Init init, const Rank& rank) {
  return {.sharding = Sharding::replicated(shape, /*sums_gradients=*/rank.tp.size > 1),
          .init = init,
          .tags = {}};
}

LayerArguments without_norm(LayerArguments arguments) {
  arguments.has_input_norm = false;
  return arguments;
}

/// Returns the width of the rows that the experts of a layer take.
std::int64_t expert_width(const TransformerConfig& config) {
  return config.moe.latent_size > 0 ? config.moe.latent_size : config.hidden_size;
}

}  // namespace

SharedExperts::SharedExperts(Module* parent, const LayerArguments& arguments)
    : Mlp(parent, "shared_experts", without_norm(arguments),
          arguments.config.moe.shared_expert_intermediate_size) {
  if (!arguments.config.moe.shared_expert_gate) return;
  const Shape shape{1, arguments.config.hidden_size};
  gate_weight_ = &declare(
      "gate_weight",
      {.sharding = Sharding::replicated(shape, /*sums_gradients=*/arguments.rank.sequence_parallel),
       .init = input_init(arguments.config, shape),
       .tags = {}},
      arguments.rank.tp);
}

at::Tensor SharedExperts::forward(const at::Tensor& input_sbh, const ForwardContext& context) {
  const at::Tensor out = Mlp::forward(input_sbh, context);
  return gate_weight_ == nullptr ? out
                                 : out * at::sigmoid(linear(input_sbh, *gate_weight_, nullptr));
}

LatentProjections::LatentProjections(Module* parent, const LayerArguments& arguments)
    : fc1_latent_proj_(
          parent, "fc1_latent_proj",
          projection_spec({arguments.config.moe.latent_size, arguments.config.hidden_size},
                          input_init(arguments.config, {arguments.config.moe.latent_size,
                                                        arguments.config.hidden_size}),
                          arguments.rank),
          arguments.rank),
      fc2_latent_proj_(
          parent, "fc2_latent_proj",
          projection_spec({arguments.config.hidden_size, arguments.config.moe.latent_size},
                          residual_init(arguments.config, {arguments.config.hidden_size,
                                                           arguments.config.moe.latent_size}),
                          arguments.rank),
          arguments.rank) {}

at::Tensor LatentProjections::down(const at::Tensor& x) const {
  return linear(x, fc1_latent_proj_.weight, nullptr);
}

at::Tensor LatentProjections::up(const at::Tensor& x) const {
  return linear(x, fc2_latent_proj_.weight, nullptr);
}

MoeLayer::MoeLayer(Module* parent, std::string_view name, const LayerArguments& arguments)
    : FeedForward(parent, name),
      config_(arguments.config),
      rank_(arguments.rank),
      index_(arguments.layer_index),
      router_(this, arguments),
      experts_(this, arguments, expert_width(config_)),
      dispatcher_(config_.moe, rank_) {
  if (arguments.has_input_norm)
    pre_mlp_layernorm_.emplace(parent, "pre_mlp_layernorm", config_, config_.hidden_size, rank_);
  if (config_.moe.latent_size > 0) latent_.emplace(this, arguments);
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
  if (pre_mlp_layernorm_) notify_op(context.hooks, *pre_mlp_layernorm_, "", input_sbh);
  const bool splits = rank_.tp.size > 1 && !context.sequence_parallel;
  const SplitPositions split{rank_.tp, split_positions(input_sbh.size(0), rank_.tp)};
  const at::Tensor own_sbh = splits ? own_positions(input_sbh, split) : input_sbh;
  TokenSpan span{.batch = input_sbh.size(1),
                 .first_position = context.s_start,
                 .num_positions = own_sbh.size(0),
                 .tokens_of_ranks = {}};
  for (std::int64_t rank = 0; rank < rank_.tp.size; ++rank)
    span.tokens_of_ranks.push_back(
        (splits ? split.parts[static_cast<std::size_t>(rank)] : own_sbh.size(0)) * span.batch);
  if (splits) span.first_position += sum_before(split.parts, rank_.tp.rank);

  const at::Tensor x = own_sbh.reshape({-1, config_.hidden_size});
  const RoutedTokens routed = router_.forward(x, span, context);
  const auto compute_shared = [&] {
    return shared_experts_ ? shared_experts_->forward(input_sbh, context) : at::Tensor();
  };
  const bool overlaps = config_.moe.shared_expert_overlap;
  at::Tensor shared = overlaps ? at::Tensor() : compute_shared();
  TokenDispatcher::Pending dispatch =
      dispatcher_.start_dispatch(latent_ ? latent_->down(x) : x, routed, span.total());
  if (overlaps) shared = compute_shared();
  DispatchedTokens tokens = dispatcher_.finish_dispatch(std::move(dispatch));
  if (config_.moe.apply_probs_on_input) {
    const auto type = tokens.rows.scalar_type();
    tokens.rows = (tokens.rows.to(tokens.probs.scalar_type()) * tokens.probs.unsqueeze(1)).to(type);
    tokens.probs = at::Tensor();
  } else {
    tokens.probs = tokens.probs.to(compute_type(x.scalar_type()));
  }
  const at::Tensor results = experts_.forward(tokens.rows, tokens.probs, tokens.counts);
  at::Tensor y = dispatcher_.finish_combine(dispatcher_.start_combine(results, tokens));
  if (latent_) y = latent_->up(y);
  y = y.view(own_sbh.sizes());
  if (splits) y = all_positions(y, split);
  notify_op(context.hooks, experts_, "", y);
  return shared.defined() ? y + shared : y;
}

}  // namespace megatron
