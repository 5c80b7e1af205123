// Shapes: b samples, n query heads, g groups of keys and values with d and dv channels.
#include "megatron/ops/paged_attention.h"

#include <ATen/ops/empty.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"

namespace megatron {
namespace {

static_assert(kBlockPositions == kernels::kPagedBlockPositions);
static_assert(sizeof(kernels::PagedRow) == 4 * sizeof(std::int64_t));
static_assert(sizeof(char*) == sizeof(std::int64_t));

/// Prompts of more rows than this are computed without blocks.
constexpr std::int64_t kRowsOfPrompt = 16;

/// Returns x [rows, b, heads, channels] as [rows, b·heads, channels] with contiguous channels.
at::Tensor heads_of(const at::Tensor& x) {
  const at::Tensor heads = x.flatten(1, 2);
  return heads.stride(2) == 1 || heads.size(2) == 1 ? heads : heads.contiguous();
}

kernels::RowHeads view_of(const at::Tensor& x) {
  return {x.const_data_ptr(), x.stride(0), x.stride(1)};
}

/// Returns the numbers of the heads [n] for each of the samples, in float32.
at::Tensor for_samples(const at::Tensor& of_heads, std::int64_t samples) {
  return of_heads.defined() ? of_heads.to(at::kFloat).repeat({samples}) : of_heads;
}

const float* floats_of(const at::Tensor& x) {
  return x.defined() ? x.const_data_ptr<float>() : nullptr;
}

/// Returns the row of the token at `position` of a sequence with `length` keys.
kernels::PagedRow row_at(const AttentionOptions& options, std::int64_t position,
                         std::int64_t length, std::int64_t table) {
  std::int64_t begin = 0, end = length;
  if (options.causal) end = std::min(end, position + 1);
  if (options.window[0] >= 0) begin = std::max(begin, position - options.window[0]);
  if (options.window[1] >= 0) end = std::min(end, position + options.window[1] + 1);
  if (options.chunk > 0) {
    const std::int64_t first = position / options.chunk * options.chunk;
    begin = std::max(begin, first);
    end = std::min(end, first + options.chunk);
  }
  return {position, begin, end, table};
}

bool is_prompt(const PackedSequence& sequence) {
  return sequence.start == 0 && sequence.count > kRowsOfPrompt;
}

/// The rows of a pass and the addresses of their blocks, as the kernels read them.
struct PagedTable {
  at::Tensor numbers;  ///< int64: PagedRow [rows], and then the addresses
  std::int64_t longest = 0;
};

PagedTable table_of(std::span<const PackedSequence> sequences, std::int64_t rows,
                    const AttentionOptions& options, const at::Device& device) {
  std::int64_t blocks = 0;
  for (const PackedSequence& sequence : sequences)
    blocks += (sequence.start + sequence.count + kBlockPositions - 1) / kBlockPositions;
  // Pinned memory is copied without waiting for the device. ATen keeps it until the copy is done.
  PagedTable table{.numbers =
                       at::empty({4 * rows + blocks},
                                 at::TensorOptions(at::kLong).pinned_memory(device.is_cuda()))};
  auto* const lines = static_cast<kernels::PagedRow*>(table.numbers.mutable_data_ptr());
  auto* const addresses = reinterpret_cast<char**>(lines + rows);
  std::fill_n(lines, rows, kernels::PagedRow{.position = -1, .begin = 0, .end = 0, .table = 0});
  std::int64_t used = 0;
  for (const PackedSequence& sequence : sequences) {
    const std::int64_t length = sequence.start + sequence.count, first = used;
    for (std::int64_t i = 0; i * kBlockPositions < length; ++i)
      addresses[used++] = sequence.blocks->addresses()[sequence.numbers[i]];
    for (std::int64_t i = 0; i < sequence.count; ++i) {
      kernels::PagedRow& line = lines[sequence.first_row + i];
      line = row_at(options, sequence.start + i, length, first);
      if (is_prompt(sequence)) line.begin = line.end = 0;
      table.longest = std::max(table.longest, line.end);
    }
  }
  table.numbers = table.numbers.to(at::TensorOptions().device(device), /*non_blocking=*/true);
  return table;
}

}  // namespace

at::Tensor paged_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                           std::span<const PackedSequence> sequences,
                           const kernels::RowOperations& operations) {
  const bool attends = inputs.q.defined();
  const at::Tensor k = heads_of(inputs.k), v = heads_of(inputs.v),
                   q = attends ? heads_of(inputs.q) : k;
  const std::int64_t rows = k.size(0), samples = inputs.k.size(1), g = k.size(1), d = k.size(2),
                     dv = v.size(2);
  MEGATRON_CHECK(
      !options.dropout.active() && !options.document_ids.defined() && !options.max_scores.defined(),
      "attention to a cache has no dropout, documents or record of scores");
  MEGATRON_CHECK(q.scalar_type() == k.scalar_type() && v.scalar_type() == k.scalar_type(),
                 "attention of ", q.scalar_type(), ", ", k.scalar_type(), ", ", v.scalar_type());
  MEGATRON_CHECK(q.size(0) == rows && q.size(1) % g == 0 && q.size(2) == d, "attention of q ",
                 q.sizes(), " over k ", k.sizes());
  MEGATRON_CHECK(std::max(d, dv) <= kernels::kMaxHeadChannels, "heads of ", d, " and ", dv,
                 " channels");
  at::Tensor out = at::empty({attends ? rows : 0, samples, q.size(1) / samples * dv}, q.options());
  if (sequences.empty()) return out;
  const PagedTable table = table_of(sequences, rows, options, k.device());
  const at::Tensor sinks = for_samples(options.sinks, samples),
                   slopes = for_samples(options.alibi_slopes, samples);
  auto* const lines = static_cast<const kernels::PagedRow*>(table.numbers.const_data_ptr());
  operations.paged_attention({.q = attends && table.longest > 0 ? view_of(q) : kernels::RowHeads{},
                              .k = view_of(k),
                              .v = view_of(v),
                              .out = out.mutable_data_ptr(),
                              .type = kernel_type(k.scalar_type()),
                              .rows = lines,
                              .blocks = reinterpret_cast<char* const*>(lines + rows),
                              .num_rows = rows,
                              .n = q.size(1),
                              .g = g,
                              .d = d,
                              .dv = dv,
                              .kept = sequences.front().blocks->size().elements_per_token / g,
                              .longest = table.longest,
                              .scale = options.scale,
                              .softcap = options.softcap,
                              .sinks = floats_of(sinks),
                              .alibi_slopes = floats_of(slopes)});
  for (const PackedSequence& sequence : sequences) {
    if (!attends || !is_prompt(sequence)) continue;
    const auto own = [&](const at::Tensor& x) {
      return x.narrow(0, sequence.first_row, sequence.count);
    };
    own(out).copy_(core_attention(own(inputs.q), own(inputs.k), own(inputs.v), options).out);
  }
  return out;
}

}  // namespace megatron
