#include "megatron/ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <vector>

#include "kernels/cpu/embedding.h"
#include "megatron/base/error.h"
#include "megatron/ops/host_scalar.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

/// Token ids as local rows of this rank's part of a table, for ATen's operators.
struct LocalIds {
  at::Tensor rows;       ///< local row; arbitrary where `elsewhere` is true
  at::Tensor elsewhere;  ///< true where another rank holds the row
};

LocalIds local_ids(const at::Tensor& ids, std::int64_t first, std::int64_t count) {
  const at::Tensor elsewhere = (ids < first).logical_or(ids >= first + count);
  return {(ids - first).masked_fill(elsewhere, 0), elsewhere};
}

at::Tensor flat(const at::Tensor& ids) { return ids.reshape({-1}).contiguous(); }

/// Describes a table and the ids, as flat `ids`, to the kernels. Each id must be a row of the whole
/// table.
kernels::EmbeddingTable kernel_table(const EmbeddingRows& rows, const at::Tensor& ids) {
  if (!rows.table.defined()) return {};
  const auto [least, largest] = host_range(ids);
  MEGATRON_CHECK(least >= 0 && largest < rows.num_rows, "ids from ", least, " to ", largest,
                 " for an embedding of ", rows.num_rows, " rows");
  return {.rows = rows.table.const_data_ptr(),
          .ids = ids.const_data_ptr<std::int64_t>(),
          .first = rows.first,
          .count = rows.table.size(0)};
}

/// Returns a result without values.
at::Tensor allocate_sum(const EmbeddingRows& words, const EmbeddingRows& /*positions*/,
                        c10::ScalarType type) {
  std::vector<std::int64_t> shape = words.ids.sizes().vec();
  shape.push_back(words.table.size(1));
  return at::empty(shape, words.table.options().dtype(type));
}

at::Tensor sum_on_cpu(const EmbeddingRows& words, const EmbeddingRows& positions,
                      c10::ScalarType type) {
  const at::Tensor& table = words.table;
  const std::int64_t columns = table.size(1);
  at::Tensor out = allocate_sum(words, positions, type);
  if (out.numel() == 0) return out;
  const bool has_positions = positions.table.defined();
  MEGATRON_CHECK(!has_positions || positions.table.scalar_type() == table.scalar_type(),
                 "embedding tables of ", table.scalar_type(), " and ",
                 positions.table.scalar_type());
  const at::Tensor tokens = flat(words.ids),
                   places = has_positions ? flat(positions.ids) : at::Tensor();
  const kernels::EmbeddingArguments arguments{.words = kernel_table(words, tokens),
                                              .positions = kernel_table(positions, places),
                                              .table_type = kernel_type(table.scalar_type()),
                                              .out = out.mutable_data_ptr(),
                                              .out_type = kernel_type(type),
                                              .columns = columns};
  parallel_kernel(kernels::embedding_kernels().look_up, arguments, tokens.numel(), columns);
  return out;
}

/// Returns rows of this rank's part of a table: zero where another rank holds the row, and NaN for
/// an id outside the whole table, because the host does not read ids on a GPU.
at::Tensor rows_by_aten(const EmbeddingRows& looked_up) {
  const auto& [table, ids, first, num_rows] = looked_up;
  const at::Tensor outside = (ids < 0).logical_or(ids >= num_rows);
  const auto [rows, elsewhere] = local_ids(ids, first, table.size(0));
  const at::Tensor none_here = elsewhere.logical_or(outside);
  const at::Tensor fill = at::zeros_like(ids, table.options())
                              .masked_fill_(outside, std::numeric_limits<double>::quiet_NaN());
  return at::where(none_here.unsqueeze(-1), fill.unsqueeze(-1), at::embedding(table, rows));
}

at::Tensor sum_by_aten(const EmbeddingRows& words, const EmbeddingRows& positions,
                       c10::ScalarType type) {
  const at::Tensor sum = rows_by_aten(words);
  return (positions.table.defined() ? sum + rows_by_aten(positions) : sum).to(type);
}

void add_on_cpu(const at::Tensor& grad, const at::Tensor& ids, const at::Tensor& given,
                std::int64_t first) {
  const at::Tensor dy = given.contiguous();
  const kernels::EmbeddingGradientArguments arguments{
      .dy = dy.const_data_ptr(),
      .dy_type = kernel_type(dy.scalar_type()),
      .gradient = grad.mutable_data_ptr(),
      .gradient_type = kernel_type(grad.scalar_type()),
      .ids = ids.const_data_ptr<std::int64_t>(),
      .first = first,
      .count = grad.size(0),
      .tokens = ids.numel(),
      .columns = grad.size(1)};
  parallel_kernel(kernels::embedding_kernels().add_rows, arguments, grad.size(1), ids.numel(),
                  /*multiple=*/64);
}

void add_by_aten(const at::Tensor& grad, const at::Tensor& ids, const at::Tensor& dy,
                 std::int64_t first) {
  const auto [rows, elsewhere] = local_ids(ids, first, grad.size(0));
  grad.index_add_(0, rows, dy.masked_fill(elsewhere.unsqueeze(1), 0).to(grad.scalar_type()));
}

void add_on_meta(const at::Tensor& /*grad*/, const at::Tensor& /*ids*/, const at::Tensor& /*dy*/,
                 std::int64_t /*first*/) {}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<sum_on_cpu>(library, "embedding");
  register_kernel<sum_by_aten>(library, "embedding", kAnyDevice);
  register_kernel<allocate_sum>(library, "embedding", kMetaDevice);
  define_operator<add_on_cpu>(
      library, "embedding_backward_(Tensor(a!) grad, Tensor ids, Tensor dy, int first) -> ()");
  register_kernel<add_by_aten>(library, "embedding_backward_", kAnyDevice);
  register_kernel<add_on_meta>(library, "embedding_backward_", kMetaDevice);
}

}  // namespace

at::Tensor embedding(const EmbeddingRows& words, const EmbeddingRows& positions,
                     c10::ScalarType type) {
  static const Operator<sum_on_cpu> op("megatron::embedding");
  return op(words, positions, type);
}

void embedding_backward_(at::Tensor& grad, const at::Tensor& ids, const at::Tensor& dy,
                         std::int64_t first) {
  static const Operator<add_on_cpu> op("megatron::embedding_backward_");
  op(grad, ids, dy, first);
}

}  // namespace megatron
