// Shapes: b samples, n query heads, g groups of keys and values with d and dv channels.
#include "megatron/ops/paged_attention.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/ops/kernel_type.h"

namespace megatron {
namespace {

static_assert(kBlockPositions == kernels::kPagedBlockPositions);

/// Prompts of more rows than this are computed without blocks.
constexpr std::int64_t kRowsOfPrompt = 16;

/// Numbers of the sums that exist at a time, which stay in the L2 cache: 16 MiB in float32.
constexpr std::int64_t kWorkspaceNumbers = std::int64_t{1} << 22;

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
  return !sequence.is_appended && sequence.start == 0 && sequence.count > kRowsOfPrompt;
}

/// Returns the rows of a pass, and behind them the addresses of their blocks, on `device`.
at::Tensor table_of(std::span<const PackedSequence> sequences, std::int64_t rows,
                    const AttentionOptions& options, const at::Device& device) {
  std::vector<kernels::PagedRow> lines(static_cast<std::size_t>(rows), {.position = -1});
  std::vector<char*> addresses;
  for (const PackedSequence& sequence : sequences) {
    const std::int64_t length = sequence.num_keys(), first = std::ssize(addresses);
    for (std::int64_t i = 0; i * kBlockPositions < length; ++i)
      addresses.push_back(sequence.blocks->addresses()[sequence.numbers[i]]);
    for (std::int64_t i = 0; i < sequence.count; ++i) {
      kernels::PagedRow& line = lines[static_cast<std::size_t>(sequence.first_row + i)];
      line = row_at(options, sequence.start + i, length, first);
      if (is_prompt(sequence)) line.begin = line.end = 0;
    }
  }
  const std::size_t line_bytes = lines.size() * sizeof(kernels::PagedRow),
                    bytes = line_bytes + addresses.size() * sizeof(char*);
  // Pinned memory is copied without waiting for the device. ATen keeps it until the copy is done.
  const at::Tensor table = at::empty({static_cast<std::int64_t>(bytes)},
                                     at::TensorOptions(at::kByte).pinned_memory(device.is_cuda()));
  auto* const to = static_cast<char*>(table.mutable_data_ptr());
  std::memcpy(to, lines.data(), line_bytes);
  std::memcpy(to + line_bytes, addresses.data(), bytes - line_bytes);
  return table.to(at::TensorOptions().device(device), /*non_blocking=*/true);
}

}  // namespace

at::Tensor paged_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                           std::span<const PackedSequence> sequences,
                           const kernels::RowOperations& operations) {
  const bool attends = inputs.q.defined();
  const at::Tensor k = heads_of(inputs.k), v = heads_of(inputs.v),
                   q = attends ? heads_of(inputs.q) : k;
  const std::int64_t rows = q.size(0), b = inputs.k.size(1), n = q.size(1), d = k.size(2),
                     dv = v.size(2);
  MEGATRON_CHECK(
      !options.dropout.active() && !options.document_ids.defined() &&
          !options.max_scores.defined() && !options.distance_bias.defined(),
      "attention to a cache has no dropout, documents, bias of distances or record of scores");
  MEGATRON_CHECK(q.scalar_type() == k.scalar_type() && v.scalar_type() == k.scalar_type() &&
                     n % k.size(1) == 0 && q.size(2) == d &&
                     std::max(d, dv) <= kernels::kMaxHeadChannels,
                 "attention of q ", q.sizes(), " over k ", k.sizes(), " and v ", v.sizes());
  at::Tensor out = at::empty({attends ? rows : 0, b, n / b * dv}, q.options());
  if (sequences.empty()) return out;
  const at::Tensor table = table_of(sequences, rows, options, k.device()),
                   sinks = for_samples(options.sinks, b),
                   slopes = for_samples(options.alibi_slopes, b);
  const auto* const lines = static_cast<const kernels::PagedRow*>(table.const_data_ptr());
  kernels::PagedAttentionArguments arguments{
      .q = view_of(q),
      .k = view_of(k),
      .v = view_of(v),
      .out = out.mutable_data_ptr(),
      .type = kernel_type(k.scalar_type()),
      .rows = lines,
      .blocks = reinterpret_cast<char* const*>(lines + rows),
      .num_rows = rows,
      .n = n,
      .g = k.size(1),
      .d = d,
      .dv = dv,
      .kept = sequences.front().blocks->size().elements_per_token / k.size(1),
      .scale = options.scale,
      .softcap = options.softcap,
      .sinks = sinks.defined() ? sinks.const_data_ptr<float>() : nullptr,
      .alibi_slopes = slopes.defined() ? slopes.const_data_ptr<float>() : nullptr,
      .parts = 0,
      .workspace = nullptr};
  if (!sequences.front().is_appended) operations.append_to_cache(arguments);
  if (!attends) return out;
  std::int64_t longest = 0;
  for (const PackedSequence& sequence : sequences)
    longest = std::max(longest, is_prompt(sequence) ? 0 : sequence.num_keys());
  arguments.parts = (longest + kernels::kPagedPartPositions - 1) / kernels::kPagedPartPositions;
  const std::int64_t of_row = std::max<std::int64_t>(1, n * arguments.parts * (2 + dv)),
                     at_once = std::clamp<std::int64_t>(kWorkspaceNumbers / of_row, 1, rows);
  const at::Tensor workspace =
      at::empty({at_once * of_row}, q.options().dtype(compute_type(q.scalar_type())));
  arguments.workspace = workspace.mutable_data_ptr();
  for (std::int64_t first = 0; first < rows && longest > 0; first += at_once) {
    arguments.num_rows = std::min(at_once, rows - first);
    arguments.rows = lines + first;
    arguments.q = view_of(q.narrow(0, first, arguments.num_rows));
    arguments.out = out.narrow(0, first, arguments.num_rows).mutable_data_ptr();
    operations.paged_attention(arguments);
  }
  for (const PackedSequence& sequence : sequences) {
    if (!is_prompt(sequence)) continue;
    const auto own = [&](const at::Tensor& x) {
      return x.narrow(0, sequence.first_row, sequence.count);
    };
    own(out).copy_(core_attention(own(inputs.q), own(inputs.k), own(inputs.v), options).out);
  }
  return out;
}

}  // namespace megatron
