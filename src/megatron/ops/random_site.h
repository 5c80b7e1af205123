// A dropout site: a place in the model that draws random numbers in a forward pass. Every number is
// a function of (seed, site name, sample ordinal, element index), and the index of an element of
// hidden states depends on the position of its row.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

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

}  // namespace megatron
