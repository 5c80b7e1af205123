#include "megatron/nn/embedding.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

#include "kernels/cpu/embedding.h"
#include "megatron/base/error.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/host_scalar.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/op_scope.h"
#include "megatron/ops/row_operations.h"
#include "megatron/ops/tensor_parallel_mappings.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

constexpr std::int64_t kGrainElements = 16384;  // fewer elements are not worth a second thread

/// Returns the first row of the whole table that this rank holds.
std::int64_t first_row(const Parameter& weight) {
  return weight.sharding().split_dim < 0 ? 0 : weight.axis().rank * weight.value().size(0);
}

/// Token ids as local rows of this rank's part of a table, for ATen's operators.
struct LocalIds {
  at::Tensor rows;       ///< local row; arbitrary where `elsewhere` is true
  at::Tensor elsewhere;  ///< true where another rank holds the row
};

LocalIds local_ids(const at::Tensor& ids, std::int64_t first, std::int64_t count) {
  const at::Tensor elsewhere = (ids < first).logical_or(ids >= first + count);
  return {(ids - first).masked_fill(elsewhere, 0), elsewhere};
}

/// Looks up contiguous ids in a table. Each id must be a row of the whole table.
kernels::EmbeddingTable kernel_table(const Parameter& weight, const at::Tensor& table,
                                     const at::Tensor& ids) {
  const auto [least, largest] = host_range(ids);
  MEGATRON_CHECK(least >= 0 && largest < weight.sharding().global_shape[0], "ids from ", least,
                 " to ", largest, " for ", weight.name(), " of ", weight.sharding().global_shape[0],
                 " rows");
  return {.rows = table.const_data_ptr(),
          .ids = ids.const_data_ptr<std::int64_t>(),
          .first = first_row(weight),
          .count = table.size(0)};
}

/// Token ids and the table they index.
struct Lookups {
  Parameter* weight = nullptr;  ///< null when there is no table
  at::Tensor ids;               ///< contiguous
};

/// Adds the rows of `words` and `positions` on the CPU.
at::Tensor look_up(const Lookups& words, const Lookups& positions, c10::ScalarType type) {
  const at::Tensor table = words.weight->precise_value();
  const at::Tensor other =
      positions.weight != nullptr ? positions.weight->precise_value() : at::Tensor();
  const std::int64_t columns = table.size(1);
  at::Tensor out = at::empty({words.ids.numel(), columns}, table.options().dtype(type));
  if (out.numel() == 0) return out;
  MEGATRON_CHECK(!other.defined() || other.scalar_type() == table.scalar_type(),
                 "embedding tables of two dtypes");
  const double numbers = static_cast<double>(out.numel()), tables = other.defined() ? 2 : 1;
  const OpScope scope("megatron::embedding", {table, words.ids, out},
                      {.flops = numbers * (tables - 1),
                       .bytes = numbers * (tables * static_cast<double>(table.element_size()) +
                                           out.element_size())});
  const kernels::EmbeddingArguments arguments{
      .words = kernel_table(*words.weight, table, words.ids),
      .positions = other.defined() ? kernel_table(*positions.weight, other, positions.ids)
                                   : kernels::EmbeddingTable{},
      .table_type = kernel_type(table.scalar_type()),
      .out = out.mutable_data_ptr(),
      .out_type = kernel_type(type),
      .columns = columns};
  at::parallel_for(0, words.ids.numel(), std::max<std::int64_t>(1, kGrainElements / columns),
                   [&](std::int64_t begin, std::int64_t end) {
                     kernels::embedding_kernels().look_up(arguments, begin, end);
                   });
  return out;
}

/// Adds grad[id − first] += row for all rows in order.
void add_rows(at::Tensor& grad, const at::Tensor& ids, const at::Tensor& rows, std::int64_t first) {
  if (!grad.is_cpu()) {
    const auto [local, elsewhere] = local_ids(ids, first, grad.size(0));
    grad.index_add_(0, local, rows.masked_fill(elsewhere.unsqueeze(1), 0).to(grad.scalar_type()));
    return;
  }
  const double numbers = static_cast<double>(rows.numel());
  const OpScope scope(
      "megatron::embedding_backward", {rows, ids, grad},
      {.flops = numbers,
       .bytes = numbers * static_cast<double>(rows.element_size() + 2 * grad.element_size())});
  const kernels::EmbeddingGradientArguments arguments{
      .dy = rows.const_data_ptr(),
      .dy_type = kernel_type(rows.scalar_type()),
      .gradient = grad.mutable_data_ptr(),
      .gradient_type = kernel_type(grad.scalar_type()),
      .ids = ids.const_data_ptr<std::int64_t>(),
      .first = first,
      .count = grad.size(0),
      .tokens = ids.numel(),
      .columns = grad.size(1)};
  at::parallel_for(
      0, grad.size(1),
      std::max<std::int64_t>(64, kGrainElements / std::max<std::int64_t>(ids.numel(), 1)),
      [&](std::int64_t begin, std::int64_t end) {
        kernels::embedding_kernels().add_rows(arguments, begin, end);
      });
}

void contribute_rows(const Lookups& lookups, const at::Tensor& dy) {
  const at::Tensor rows = dy.reshape({lookups.ids.numel(), -1}).contiguous();
  lookups.weight->contribute(
      [ids = lookups.ids, rows, first = first_row(*lookups.weight)](at::Tensor& grad, bool fresh) {
        if (fresh) grad.zero_();
        add_rows(grad, ids, rows, first);
      });
}

/// Returns the flat ids of a gradient's tokens.
at::Tensor flat(const at::Tensor& ids) { return ids.reshape({-1}).contiguous(); }

at::Tensor rows_of_table(const at::Tensor& ids, Parameter& weight) {
  const at::Tensor& table = weight.precise_value();
  if (table.is_cpu()) {
    std::vector<std::int64_t> shape = ids.sizes().vec();
    shape.push_back(table.size(1));
    return look_up({&weight, flat(ids)}, {}, table.scalar_type()).view(shape);
  }
  const auto [rows, elsewhere] = local_ids(ids, first_row(weight), table.size(0));
  return at::embedding(table, rows).masked_fill_(elsewhere.unsqueeze(-1), 0);
}

}  // namespace

at::Tensor embedding_lookup(const at::Tensor& ids, Parameter& weight) {
  return differentiable({.name = "EmbeddingBackward", .trains_parameters = true}, {},
                        [&] {
                          return Recorded{
                              .outputs = {rows_of_table(ids, weight)},
                              .saved = {ids},
                              .backward = [&weight](BackwardPass& pass) -> Tensors {
                                contribute_rows({&weight, flat(pass.saved[0])}, pass.gradients[0]);
                                return {};
                              }};
                        })
      .front();
}

ParameterSpec word_embedding_spec(const TransformerConfig& config, std::int64_t vocab_pad_multiple,
                                  StageSharing sharing) {
  return {
      .sharding = Sharding::vocabulary({config.vocab_size, config.hidden_size}, vocab_pad_multiple),
      .init = embedding_init(config),
      .tags = {.embedding = true, .precise = true},
      .sharing = sharing};
}

LanguageModelEmbedding::LanguageModelEmbedding(Module* parent, const TransformerConfig& config,
                                               const Rank& rank,
                                               const ParameterSpec& word_embeddings)
    : Module(parent, "embedding"),
      config_(config),
      word_embeddings_(this, "word_embeddings", word_embeddings, rank.tp) {
  if (config.position_embedding_type == PositionEmbedding::learned_absolute) {
    const ParameterSpec spec{
        .sharding = Sharding::replicated({config.max_position_embeddings, config.hidden_size}),
        .init = embedding_init(config),
        .tags = {.precise = true},
        .sum_over_tp = rank.sequence_parallel};
    position_embeddings_ = std::make_unique<Table>(this, "position_embeddings", spec, rank.tp);
  }
}

at::Tensor LanguageModelEmbedding::forward(const at::Tensor& tokens, const at::Tensor& position_ids,
                                           const ForwardContext& context) const {
  const auto type = word_embeddings_.weight.value().scalar_type();
  const auto residual_type = config_.fp32_residual_connection ? compute_type(type) : type;
  const bool in_one_pass =
      tokens.is_cpu() && word_embeddings_.weight.axis().size == 1 && context.hooks == nullptr;
  const at::Tensor hidden_sbh = in_one_pass ? sum_in_one_pass(tokens, position_ids, residual_type)
                                            : sum(tokens, position_ids, context).to(residual_type);
  const at::Tensor dropped = dropout(
      hidden_sbh, context.dropout(path(), "dropout", config_.hidden_dropout), context.s_start);
  notify_op(context.hooks, *this, "dropout", dropped);
  return dropped;
}

at::Tensor LanguageModelEmbedding::sum_in_one_pass(const at::Tensor& tokens,
                                                   const at::Tensor& position_ids,
                                                   c10::ScalarType type) const {
  Parameter* positions = position_embeddings_ ? &position_embeddings_->weight : nullptr;
  Parameter* words = &word_embeddings_.weight;
  return differentiable(
             {.name = "EmbeddingSumBackward", .trains_parameters = true}, {},
             [&] {
               const at::Tensor ids = tokens.t(), places = position_ids.expand_as(tokens).t();
               const at::Tensor sum = look_up({words, flat(ids)}, {positions, flat(places)}, type)
                                          .view({ids.size(0), ids.size(1), -1});
               return Recorded{
                   .outputs = {sum},
                   .saved = {ids, places},
                   .backward = [words, positions](BackwardPass& pass) -> Tensors {
                     contribute_rows({words, flat(pass.saved[0])}, pass.gradients[0]);
                     if (positions != nullptr)
                       contribute_rows({positions, flat(pass.saved[1])}, pass.gradients[0]);
                     return {};
                   }};
             })
      .front();
}

at::Tensor LanguageModelEmbedding::sum(const at::Tensor& tokens, const at::Tensor& position_ids,
                                       const ForwardContext& context) const {
  const Axis& tp = word_embeddings_.weight.axis();
  at::Tensor hidden_sbh = embedding_lookup(tokens.t(), word_embeddings_.weight);
  hidden_sbh = context.sequence_parallel
                   ? reduce_scatter_to_sequence_parallel_region(hidden_sbh, tp, "word_embeddings")
                   : reduce_from_tensor_parallel_region(hidden_sbh, tp, "word_embeddings");
  notify_op(context.hooks, word_embeddings_, "", hidden_sbh);
  if (!position_embeddings_) return hidden_sbh;
  const at::Tensor mine = position_ids.expand_as(tokens).narrow(
      1, context.s_start - context.q_start, hidden_sbh.size(0));
  hidden_sbh = hidden_sbh + embedding_lookup(mine.t(), position_embeddings_->weight);
  notify_op(context.hooks, *position_embeddings_, "", hidden_sbh);
  return hidden_sbh;
}

}  // namespace megatron
