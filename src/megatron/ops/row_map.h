// Rows that are copied to several places and summed again: tokens on their way to experts and back.
// A map has `sources` rows on one side and `rows` copies of them, sorted by slot (an expert, or a
// rank), on the other.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace megatron {

/// Where each copy comes from, and how the copies of a source are added. All tensors are on the
/// device of the rows.
struct RowMap {
  at::Tensor source;    ///< int32 [rows]: the source of each copy; −1: a row of zeros
  at::Tensor choice;    ///< int32 [rows]: index of the copy in the flattened choices; −1: none
  at::Tensor offsets;   ///< int32 [sources + 1]: begin of each source's summands
  at::Tensor summands;  ///< int32: the copies of each source in the order of their sum
  at::Tensor folds;     ///< uint8, one for each summand: kernels/cpu/row_sums.h
  std::int64_t num_rows() const { return source.size(0); }
  std::int64_t num_sources() const { return offsets.size(0) - 1; }
};

/// A map and the number of rows in each slot.
struct SlotMap {
  RowMap map;
  std::vector<std::int64_t> counts;
};

/// Returns for each of `count` experts a code of the path to it when the range [0, count) is halved
/// again and again. Sums over experts follow this tree, so that the sum of a half, or of a quarter,
/// can be formed on another rank without a change of any bit.
std::vector<std::uint64_t> halving_codes(std::int64_t count);

/// Sorts copies of rows by slot. `choices` is int32 [sources, c] on the CPU: the slots that each
/// source is copied to, in the order in which its copies are added; a negative number is no slot.
/// Rows of a slot keep the order of their sources. codes[slot] decides in which tree the copies are
/// added: those with the longest common prefix first. A slot with fewer than `least` rows is filled
/// up with rows of zeros.
SlotMap sort_by_slot(const at::Tensor& choices, std::span<const std::uint64_t> codes,
                     std::int64_t least = 0);

/// Returns a map without values, for the meta device: `copies` are divided evenly over the slots.
SlotMap even_map(std::int64_t sources, std::int64_t copies, std::int64_t slots, std::int64_t least,
                 c10::Device device);

/// Returns the copies of x [sources, …]: [rows, …]. Not differentiable.
at::Tensor gather_rows(const at::Tensor& x, const RowMap& map);
/// Returns for each source the sum of its copies in y [rows, …], in float32 (float64), rounded
/// once: [sources, …]. Not differentiable.
at::Tensor sum_rows(const at::Tensor& y, const RowMap& map);

/// Returns values [rows] of `values` [sources, c], those of the choice of each copy; 0 without one.
at::Tensor gather_choices(const at::Tensor& values, const RowMap& map);
/// Transposed: adds dvalues [rows] to zeros of [sources, c], in ascending order of the rows.
at::Tensor sum_choices(const at::Tensor& dvalues, const RowMap& map, std::int64_t choices);

}  // namespace megatron
