// Random numbers by coordinates, and dropout with them. Every number is a function of (seed, site
// name, sample ordinal, element index), and the index of an element of hidden states depends on the
// position of its row. So it depends on the place of an element in the global model and sample,
// never on the parallel layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "kernels/row_operations.h"

namespace megatron {

/// The positions of the rows of hidden states [s, b, h] in their sequences.
struct RowPositions {
  std::int64_t first = 0;  ///< of row 0, when the rows are neighbours
  at::Tensor each = {};    ///< int64 [s] on the device of the rows; undefined: first + row
  /// Packed sequences (b = 1): int64 [s], the ordinal of each row's sequence. Undefined: the
  /// columns are samples.
  at::Tensor ordinals = {};
  /// Packed sequences: int64 [s], the index of each row's sequence in the microbatch.
  at::Tensor sequences = {};
  /// bool [s, 1 or b]: rows of samples that hold padding; undefined: none.
  at::Tensor padding = {};

  /// Returns the positions of `count` rows from row `begin` on.
  RowPositions slice(std::int64_t begin, std::int64_t count) const {
    RowPositions part{.first = first + begin};
    if (each.defined()) part.each = each.narrow(0, begin, count);
    if (ordinals.defined()) part.ordinals = ordinals.narrow(0, begin, count);
    if (sequences.defined()) part.sequences = sequences.narrow(0, begin, count);
    if (padding.defined()) part.padding = padding.narrow(0, begin, count);
    return part;
  }
};

/// The key, the samples and the rows of one dropout site.
struct DropoutSite {
  double probability = 0;  ///< probability of dropping an element; 0 turns dropout off
  std::uint64_t key = 0;   ///< philox_key(seed, site name)
  /// int64 on the device of the activations, one for each sample [b] or packed sequence.
  at::Tensor sample_ordinals;
  RowPositions positions = {};  ///< of hidden states; attention has positions of its own
  bool active() const { return probability > 0; }
  /// Returns the ordinals for hidden states: int64 [b] or, with packed sequences, [s].
  const at::Tensor& hidden_ordinals() const {
    return positions.ordinals.defined() ? positions.ordinals : sample_ordinals;
  }
  at::Tensor& hidden_ordinals() {
    return positions.ordinals.defined() ? positions.ordinals : sample_ordinals;
  }
  static auto members(auto& site) {
    return std::tie(site.hidden_ordinals(), site.probability, site.key, site.positions.first,
                    site.positions.each);
  }
};

/// Returns the kernels' dropout rule for a site. The rule of an inactive site keeps every element
/// unchanged.
kernels::DropoutRule dropout_rule(const DropoutSite& site);

/// Returns the coordinates of the rows of hidden states [s, b, h], or empty coordinates for an
/// inactive site. Throws InternalError unless the site has one ordinal per sample, and one position
/// per row or none, on the device of `hidden`.
kernels::RowCoordinates hidden_coordinates(const at::Tensor& hidden, const DropoutSite& site);

/// Returns residual + dropout(x) for x and residual [s, b, h]; differentiable. The random element
/// index is position·h + feature. With n streams, [s, b, n, h], a row has n·h features.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutSite& site);

/// Returns dropout(x) with the element indices of dropout_add(); differentiable.
at::Tensor dropout(const at::Tensor& x, const DropoutSite& site);

/// Returns dropout(x) in dtype `type` without recording a gradient. Backward functions use it to
/// pass a gradient through dropout.
at::Tensor dropout_as(const at::Tensor& x, c10::ScalarType type, const DropoutSite& site);

/// Returns a pointer to the ordinals of the `samples` samples in x, on the device of x. Throws
/// InternalError when the site's ordinals have another count or device.
const std::int64_t* dropout_ordinals(const DropoutSite& site, const at::Tensor& x,
                                     std::int64_t samples);

/// The place of a block of attention scores in the per-sample scores [all heads, total_q, total_k].
struct ScoreBlock {
  std::int64_t first_head = 0;
  std::int64_t q_start = 0, total_q = 0, k_start = 0, total_k = 0;
  static auto members(auto& b) {
    return std::tie(b.first_head, b.q_start, b.total_q, b.k_start, b.total_k);
  }
};

/// Applies dropout in place to a contiguous block of attention probabilities [b, n, q, k]. It is
/// not differentiable: attention calls it in both passes.
void dropout_scores_(at::Tensor& probabilities, const DropoutSite& site, const ScoreBlock& block);

/// Returns u in (0, 1) for each element of hidden rows [s, b, columns], float32: Philox with `key`,
/// the sample's ordinal and the element's index in [all positions, columns]. `ordinals` is int64
/// [b].
at::Tensor coordinate_uniforms(at::IntArrayRef shape, std::uint64_t key, const at::Tensor& ordinals,
                               const RowPositions& positions);

}  // namespace megatron
