#include "megatron/training/layout_check/compared_step.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/ops/sequence_placement.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// Sets the part of `mask` that `indices` select along its dimensions from `dim` on.
void fill(at::Tensor mask, const std::vector<at::Tensor>& indices, std::size_t dim) {
  while (dim < indices.size() && !indices[dim].defined()) ++dim;
  if (dim == indices.size()) {
    mask.fill_(1);
    return;
  }
  const auto d = static_cast<std::int64_t>(dim);
  at::Tensor part = mask.index_select(d, indices[dim]);
  fill(part, indices, dim + 1);
  mask.index_copy_(d, indices[dim], part);
}

/// A tensor whose values are this much smaller than the largest of their kind is judged by the
/// latter: gradients that are 0 in exact arithmetic consist of rounding errors.
constexpr double kSmallShare = 1e-4;

/// Returns the rows of the microbatch that an output with `count` rows has; nullopt if it has
/// others, such as rows that were sent to experts.
std::optional<at::Tensor> rows_of_output(const Microbatch& microbatch, const Rank& rank,
                                         std::int64_t count) {
  const SequencePlacement placement = placement_of(microbatch, rank.cp.size);
  const at::Tensor rows =
      positions_of(placement.runs_of.at(static_cast<std::size_t>(rank.cp.rank)));
  if (rows.numel() == count) return rows;
  // Sequence parallelism divides them over tp.
  if (rows.numel() == count * rank.tp.size) return rows.narrow(0, rank.tp.rank * count, count);
  return std::nullopt;
}

at::Tensor range(std::int64_t first, std::int64_t count) {
  return at::arange(first, first + count, at::kLong);
}

/// Returns the channels of the whole output that a rank's output has: those of the rows of the
/// op's weight, else an equal share of them; undefined if it has all, nullopt if unknown.
std::optional<at::Tensor> channels_of_output(const Parameter* weight, const Axis& tp,
                                             std::int64_t count, std::int64_t whole) {
  if (count == whole) return at::Tensor();
  if (weight != nullptr && weight->sharding().global_shape.front() == whole) {
    std::vector<at::Tensor> parts;
    for (const TensorSlice& slice : weight->slices())
      parts.push_back(range(slice.global_offset.front(), slice.shape.front()));
    at::Tensor channels = at::cat(parts);
    return channels.numel() == count ? std::optional(channels) : std::nullopt;
  }
  const std::int64_t parts = count > 0 && whole % count == 0 ? whole / count : 0;
  if (parts == 0 || tp.size % parts != 0) return std::nullopt;
  return range(tp.rank / (tp.size / parts) * count, count);
}

/// Returns an output as [rows, b, channels].
at::Tensor in_channels(const at::Tensor& output) { return output.flatten(2); }

}  // namespace

at::Tensor& Coverage::mask_of(const Key& key, const at::Tensor& whole) {
  at::Tensor& mask = masks_[key];
  if (!mask.defined()) mask = at::zeros(whole.sizes(), at::kByte);
  return mask;
}

void Coverage::add(CheckedKind kind, const std::string& name, const at::Tensor& whole,
                   const std::vector<TensorSlice>& slices) {
  const std::lock_guard lock(mutex_);
  const at::Tensor& mask = mask_of({kind, name, 0}, whole);
  for (const TensorSlice& slice : slices)
    narrow_to(mask, slice.global_offset, slice.shape).fill_(1);
}

void Coverage::add(const std::string& op, std::int64_t ordinal, const at::Tensor& whole,
                   const std::vector<at::Tensor>& indices) {
  const std::lock_guard lock(mutex_);
  fill(mask_of({CheckedKind::activation, op, ordinal}, whole), indices, 0);
}

void Coverage::add_gap(const Key& key, const at::Tensor& whole, std::vector<Gap>& gaps) const {
  const auto found = masks_.find(key);
  const at::Tensor mask =
      found == masks_.end() ? at::zeros(whole.sizes(), at::kByte) : found->second;
  const std::int64_t num_missing = mask.numel() - mask.sum().item<std::int64_t>();
  if (num_missing == 0) return;
  const at::Tensor missing = mask.eq(0).view({-1});
  std::int64_t index = missing.to(at::kByte).argmax().item<std::int64_t>();
  Gap gap{std::get<0>(key), std::get<1>(key), num_missing, mask.numel(),
          Shape(static_cast<std::size_t>(mask.dim()))};
  for (std::size_t d = gap.first.size(); d-- > 0;) {
    const std::int64_t size = mask.size(static_cast<std::int64_t>(d));
    gap.first[d] = index % size;
    index /= size;
  }
  gaps.push_back(std::move(gap));
}

std::vector<Gap> Coverage::gaps(const ReferenceStep& reference,
                                const std::set<std::string>& not_compared) const {
  const std::lock_guard lock(mutex_);
  std::vector<Gap> gaps;
  for (const auto& [kind, tensors] : reference.tensors) {
    for (const auto& [name, whole] : tensors) add_gap({kind, name, 0}, whole, gaps);
  }
  for (const std::string& op : reference.ops) {
    if (not_compared.contains(op)) continue;
    for (const auto& [ordinal, whole] : reference.activations.at(op)) {
      // Masks of outputs of three and more dimensions have the shape [rows, b, channels].
      const bool has_rows = whole.dim() >= 3;
      add_gap({CheckedKind::activation, op, ordinal}, has_rows ? whole.flatten(2) : whole, gaps);
    }
  }
  return gaps;
}

StepComparer::StepComparer(const ReferenceStep& reference, const Rank& rank,
                           const ParamStore& weights, Coverage& coverage, double tolerance)
    : reference_(reference),
      rank_(rank),
      weights_(weights),
      coverage_(coverage),
      tolerance_(tolerance) {
  for (const auto& [kind, tensors] : reference.tensors) {
    for (const auto& [name, tensor] : tensors)
      largest_[kind] = std::max(largest_[kind], largest_magnitude(tensor));
  }
}

void StepComparer::judge(CheckedKind kind, const std::string& name, TensorDifference worst,
                         double scale) {
  ++findings_.num_compared;
  const double relative = worst.distance > 0 ? worst.distance / scale : 0;
  if (relative <= tolerance_) {
    findings_.largest_relative = std::max(findings_.largest_relative, relative);
    return;
  }
  findings_.differences.push_back({.kind = kind,
                                   .name = name,
                                   .rank = rank_.world.rank,
                                   .relative = relative,
                                   .worst = std::move(worst)});
}

void StepComparer::activation(const std::string& op, const Microbatch& microbatch,
                              const at::Tensor& output) {
  const auto of_op = reference_.activations.find(op);
  const auto leave_out = [&] { findings_.not_compared.insert(op); };
  if (of_op == reference_.activations.end() || microbatch.hybrid() != nullptr) return leave_out();
  const auto found = of_op->second.find(microbatch.sample_ordinals[0].item<std::int64_t>());
  if (found == of_op->second.end()) return leave_out();
  const at::Tensor& whole = found->second;
  if (output.dim() < 3 || whole.dim() < 3) {
    // A scalar, which is a sum over the rows of a rank.
    if (output.dim() > 0 || rank_.cp.size > 1) return leave_out();
    coverage_.add(op, found->first, whole, {});
    return judge(CheckedKind::activation, op,
                 difference(output.detach(), whole, std::vector<at::Tensor>()),
                 std::max(largest_magnitude(whole), kSmallShare));
  }
  const at::Tensor part_rbc = in_channels(output), whole_rbc = in_channels(whole);
  const auto rows = rows_of_output(microbatch, rank_, part_rbc.size(0));
  const auto channels = channels_of_output(weights_.find(op + ".weight"), rank_.tp,
                                           part_rbc.size(2), whole_rbc.size(2));
  if (!rows || !channels || part_rbc.size(1) != whole_rbc.size(1)) return leave_out();
  coverage_.add(op, found->first, whole_rbc, {*rows, at::Tensor(), *channels});
  TensorDifference worst = difference(part_rbc, whole_rbc, {*rows, at::Tensor(), *channels});
  if (!worst.at.empty() && worst.at[1] < microbatch.sample_ordinals.numel())
    worst.at[1] = microbatch.sample_ordinals[worst.at[1]].item<std::int64_t>();
  judge(CheckedKind::activation, op, std::move(worst),
        std::max(largest_magnitude(whole), kSmallShare));
}

void StepComparer::tensor(CheckedKind kind, const Parameter& parameter, const at::Tensor& value) {
  const NamedTensors& all = reference_.tensors.at(kind);
  const auto whole = all.find(parameter.name());
  if (whole == all.end()) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return judge(kind, parameter.name(), {.distance = kInfinity}, 1);
  }
  coverage_.add(kind, parameter.name(), whole->second, parameter.slices());
  judge(kind, parameter.name(), difference(value.detach(), whole->second, parameter.slices()),
        std::max(largest_magnitude(whole->second), kSmallShare * largest_.at(kind)));
}

void StepComparer::loss(double found) { number(CheckedKind::loss, found, reference_.loss); }

void StepComparer::grad_norm(double found) {
  number(CheckedKind::grad_norm, found, reference_.grad_norm);
}

void StepComparer::number(CheckedKind kind, double found, double expected) {
  const double distance = std::abs(found - expected);
  judge(kind, name_of(kind),
        {.distance = std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance,
         .at = {},
         .found = found,
         .expected = expected},
        std::max(std::abs(expected), kSmallShare));
}

}  // namespace megatron
