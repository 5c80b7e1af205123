// b samples, s positions, h hidden channels.
#include "megatron/models/multi_token_prediction.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <utility>

#include "megatron/base/philox.h"
#include "megatron/models/pass.h"
#include "megatron/nn/linear_layers.h"
#include "megatron/nn/norm.h"
#include "megatron/ops/tensor_parallel_mappings.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// Returns the name of the loss of a depth in Megatron's log.
std::string loss_name(std::int64_t depth) { return "mtp_" + std::to_string(depth) + " loss"; }

/// Returns x [b, s] without its first columns, and zeros behind.
at::Tensor shifted(const at::Tensor& x_bs, std::int64_t distance) {
  const std::int64_t length = x_bs.size(1), cut = std::min(distance, length);
  return at::cat({x_bs.narrow(1, cut, length - cut), x_bs.new_zeros({x_bs.size(0), cut})}, 1);
}

/// What a depth begins with: the projection of normed embeddings of later tokens, and of the normed
/// rows of the depth before.
class MergingInput : public Input {
 public:
  MergingInput(const PartArguments& arguments, const std::string& name, std::int64_t depth,
               std::string previous, std::unique_ptr<Input> embedding)
      : Input(arguments.parent, name),
        config_(arguments.config),
        rank_(arguments.rank),
        depth_(depth),
        previous_(std::move(previous)),
        embedding_(std::move(embedding)),
        enorm_(this, "enorm", config_, config_.hidden_size, rank_),
        hnorm_(this, "hnorm", config_, config_.hidden_size, rank_),
        eh_proj_(this, "eh_proj", config_, rank_,
                 {.in = 2 * config_.hidden_size,
                  .out = config_.hidden_size,
                  .blocks = {},
                  .bias = false}) {}

  at::Tensor forward(const Microbatch& microbatch, const at::Tensor& position_ids,
                     const ForwardContext& context) const override {
    Microbatch later = microbatch;
    if (!microbatch.has("previous_rows"))  // Pass::depth
      later.tensors["tokens"] = later_rows(context.tokens, depth_, microbatch, context).mine;
    ForwardContext own = context;
    own.hooks = nullptr;  // they know the ops of the decoder's embedding
    own.seed = philox_key(context.seed, "mtp_" + std::to_string(depth_));  // of dropout
    const at::Tensor embedded_sbh = embedding_->forward(later, position_ids, own);
    const at::Tensor both =
        at::cat({enorm_.forward(embedded_sbh), hnorm_.forward(context.published(previous_))}, -1);
    at::Tensor merged_sbh =
        gather_from_tensor_parallel_region(eh_proj_.forward(both, context), rank_.tp, "eh_proj");
    if (context.sequence_parallel)
      merged_sbh = scatter_replicated_sequence(merged_sbh, rank_.tp, "eh_proj");
    return merged_sbh.to(embedded_sbh.scalar_type());
  }

 private:
  const TransformerConfig& config_;
  const Rank& rank_;
  const std::int64_t depth_;
  const std::string previous_;  ///< what the depth before publishes
  std::unique_ptr<Input> embedding_;
  Norm enorm_, hnorm_;
  ColumnParallelLinear eh_proj_;
};

/// The head of the model on the rows of a depth. Its loss is a mean over the labels that the depth
/// has, times a factor.
class DepthHead : public Head {
 public:
  DepthHead(std::unique_ptr<Head> head, std::int64_t depth, double factor, std::string rows)
      : head_(std::move(head)), depth_(depth), factor_(factor), rows_(std::move(rows)) {}

  StepOutput loss(const at::Tensor& /*hidden_sbh*/, const Microbatch& microbatch,
                  const ForwardContext& context, const LossGradient& /*gradient*/) const override {
    const LaterRows mask = later_rows(microbatch.at("loss_mask"), depth_, microbatch, context);
    Microbatch later = microbatch;
    later.tensors["labels"] = later_rows(microbatch.at("labels"), depth_, microbatch, context).mine;
    later.tensors["loss_mask"] = mask.mine;
    StepOutput output = head_->loss(context.published(rows_), later, context, {});
    output.terms.front().name = loss_name(depth_);
    // Roots are divided by the count of the microbatch, which is that of depth 0.
    const at::Tensor weight = count(microbatch).to(at::kDouble).clamp_min(1) * factor_ /
                              mask.all.sum().to(at::kDouble).clamp_min(1);
    output.root = output.root * weight.to(output.root.scalar_type());
    return output;
  }

 private:
  const std::unique_ptr<Head> head_;
  const std::int64_t depth_;
  const double factor_;
  const std::string rows_;  ///< what the depth publishes
};

}  // namespace

LaterRows later_rows(const at::Tensor& x_bs, std::int64_t distance, const Microbatch& microbatch,
                     const ForwardContext& context) {
  const bool is_divided = context.cp != nullptr && context.cp->size > 1;
  const auto of_all_ranks = [&](const at::Tensor& mine_bs) {
    if (!is_divided) return mine_bs;
    const at::Tensor by_rank_sb = all_gather(*context.cp, mine_bs.t().contiguous(), "later rows");
    return at::index_select(by_rank_sb, 0, context.placement->row_of).t();
  };
  const at::Tensor positions =
      of_all_ranks(position_ids({.microbatch = microbatch}).to(x_bs.device()));
  at::Tensor is_inside = shifted(positions, distance).eq(positions + distance);
  if (context.document_ids.defined()) {
    const at::Tensor documents = context.document_ids.to(x_bs.device());
    is_inside = is_inside * shifted(documents, distance).eq(documents);
  }
  const at::Tensor all = shifted(of_all_ranks(x_bs), distance) * is_inside.to(x_bs.scalar_type());
  if (!is_divided) return {all, all};
  const std::int64_t rows = x_bs.size(1);
  return {
      at::index_select(all, 1, context.placement->order.narrow(0, context.cp->rank * rows, rows)),
      all};
}

void add_multi_token_prediction(ModelSpec& spec) {
  const StackSpec decoder = spec.stacks.front();
  const TransformerConfig& config = decoder.config;
  const std::int64_t depths = config.mtp_num_layers;
  for (std::int64_t depth = 1; depth <= depths; ++depth) {
    const std::int64_t layer = config.mtp_use_repeated_layer ? 0 : depth - 1;
    const std::string name = "mtp.layers." + std::to_string(layer),
                      rows = "mtp_" + std::to_string(depth),
                      previous = spec.stacks.back().published_name();
    StackSpec stack = decoder;
    stack.name = name;
    stack.publishes = rows;
    stack.first_layer = config.num_layers + layer * config.mtp_depth_layers;
    stack.num_layers = config.mtp_depth_layers;
    stack.only_for_loss = true;
    stack.layers.layer_name = [first = stack.first_layer,
                               is_hybrid = !config.hybrid_layer_pattern.empty()](std::int64_t i) {
      return is_hybrid ? "mtp_model_layer.layers." + std::to_string(i - first)
                       : std::string("transformer_layer");
    };
    stack.input = [=, make_embedding = decoder.input](const PartArguments& arguments) {
      return std::make_unique<MergingInput>(arguments, name, depth, previous,
                                            make_embedding(arguments));
    };
    spec.stacks.push_back(std::move(stack));
    spec.heads.emplace_back([=, make_head = spec.heads.front(),
                             factor = config.mtp_loss_scaling_factor /
                                      static_cast<double>(depths)](const PartArguments& arguments) {
      return std::make_unique<DepthHead>(make_head(arguments), depth, factor, rows);
    });
    spec.objective.names.push_back(loss_name(depth));
  }
}

}  // namespace megatron
